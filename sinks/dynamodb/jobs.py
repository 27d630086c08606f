"""The job log in DynamoDB: a record for each job, and a lease while one of its kind and target runs.

jobs           by id, which begins with the time: the job, what is sealed of it as the body, and `holder` of the lease
cancelled jobs by id: somebody asked to cancel it

Only the holder of the lease changes a running job. A job that says RUNNING without a lease is interrupted.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice

from idgraph.model import canonical
from idgraph.model.errors import AlreadyRunningError, StoreError
from idgraph.model.jobs import JobIdentity, JobKind, JobRecord, JobState, Progress, Requester
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import TablesLocation
from sinks.dynamodb.record_leases import LEASE_SECONDS, leased, leases_of
from sinks.dynamodb.records import ABSENT, DynamoRecords, Row, Seen, Value
from sinks.job_rows import KEPT, decoded, encoded, now, running_already

_JOBS, _CANCELLED = "jobs", "cancelled jobs"


class DynamoJobLog:
    """`JobLog` in the table `shared`."""

    def __init__(self, place: TablesLocation, lease_seconds: float = LEASE_SECONDS) -> None:
        self._records = DynamoRecords(DynamoClient(place))
        self._lease_seconds = lease_seconds
        self._running: dict[str, Row] = {}
        """The jobs that run here, as they were written last."""

    @contextmanager
    def running(self, work: JobIdentity, origin: Requester, again: bool = False) -> Iterator[JobRecord]:
        with ExitStack() as stack:
            try:
                lease = stack.enter_context(
                    leased(self._records, _lease(work.kind, work.target), self._lease_seconds, outlives=True)
                )
            except AlreadyRunningError:
                for each in self.scan(work.kind):
                    if each.target == work.target and each.state is JobState.RUNNING:
                        message = running_already(work.kind, each.id, each.origin.who, each.started)
                        raise AlreadyRunningError(message) from None
                raise
            row = self._begin(work, origin, again, lease.holder)
            job_id = row["sk"]
            try:
                (record,) = self._recorded([row])
                yield record
            finally:
                last = self._running.pop(job_id)
                if last["state"] == JobState.RUNNING:
                    self._write(last, state=JobState.INTERRUPTED)

    def keep(self, job_id: str, progress: Progress, private: bytes) -> bool:
        self._write(self._running[job_id], progress=encoded(progress), body=private)
        return self._records.one(_CANCELLED, job_id) is not None

    def reseal(self, job_id: str, private: bytes) -> None:
        row = self._records.one(_JOBS, job_id)
        if row is not None and next(self._recorded([row])).state is not JobState.RUNNING:
            # Refused where it was resumed meanwhile.
            self._records.change([(row | {"body": private}, _seen(row))])

    def end(self, job_id: str, state: JobState, progress: Progress, private: bytes) -> None:
        self._write(self._running[job_id], state=state, progress=encoded(progress), body=private)

    def cancel(self, job_id: str) -> bool:
        record = self.get(job_id)
        if record is None or record.state is not JobState.RUNNING:
            return False
        self._records.put([{"pk": _CANCELLED, "sk": job_id}])
        return True

    def get(self, job_id: str) -> JobRecord | None:
        row = self._records.one(_JOBS, job_id)
        return None if row is None else next(self._recorded([row]))

    def scan(self, kind: JobKind | None = None) -> Iterator[JobRecord]:
        rows = list(self._records.rows(_JOBS, backward=True, where={"kind": kind} if kind else None))
        return self._recorded(rows)

    def close(self) -> None:
        self._records.close()

    def _begin(self, work: JobIdentity, origin: Requester, again: bool, holder: str) -> Row:
        what = canonical.encode(dict(work.what)).decode()
        known = self._records.rows(_JOBS, backward=True, where={"kind": work.kind, "target": work.target})
        last = next(known, None)
        is_same = last and last["what"] == what and (last["state"] != JobState.DONE or work.reopens)
        began = now()
        if last and is_same and not again:
            self._records.delete([{"pk": _CANCELLED, "sk": last["sk"]}])
            row, seen = last, _seen(last)
        else:
            new_id = f"{began:011x}{secrets.token_hex(3)}"
            row = {"pk": _JOBS, "sk": new_id, "kind": work.kind, "target": work.target, "what": what}
            row |= {"started": began, "progress": "{}", "body": b""}
            seen = ABSENT
            self._forget_oldest()
        row |= {"who": origin.who, "why": origin.why, "updated": began, "state": JobState.RUNNING}
        row |= {"holder": holder}
        if not self._records.change([(row, seen)]):
            raise StoreError(f"job {row['sk']} was changed meanwhile; do it again")
        self._running[row["sk"]] = row
        return row

    def _forget_oldest(self) -> None:
        older = islice(self._records.rows(_JOBS, backward=True, only=["state"]), KEPT - 1, None)
        ended = [each for each in older if each["state"] != JobState.RUNNING]
        self._records.delete(ended)
        self._records.delete([{"pk": _CANCELLED, "sk": each["sk"]} for each in ended])

    def _write(self, row: Row, **changed: Value) -> None:
        new = row | changed | {"updated": now()}
        if not self._records.change([(new, {"holder": row["holder"]})]):
            raise StoreError(f"job {row['sk']} was taken over by another process, since this one was away")
        self._running[row["sk"]] = new

    def _recorded(self, rows: Collection[Row]) -> Iterator[JobRecord]:
        running = [row for row in rows if row["state"] == JobState.RUNNING]
        leases = leases_of(self._records, [_lease(row["kind"], row["target"]) for row in running])
        for row in rows:
            state = JobState(row["state"])
            if state is JobState.RUNNING and leases.get(_lease(row["kind"], row["target"])) != row["holder"]:
                state = JobState.INTERRUPTED
            yield JobRecord(
                row["sk"],
                JobKind(row["kind"]),
                row["target"],
                json.loads(row["what"]),
                Requester(row["who"], row["why"]),
                state,
                row["started"],
                row["updated"],
                decoded(row["progress"]),
                row["body"],
            )


def _seen(row: Row) -> Seen:
    return {"holder": row["holder"], "updated": row["updated"]}


def _lease(kind: str, target: str) -> str:
    # Keys are what DynamoDB's own logs show, and a target may name a caller.
    return f"{kind} {hashlib.sha256(target.encode()).hexdigest()[:16]}"
