"""Jobs that do nothing but what a test lets them do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from idgraph.jobs.table import JOBS
from idgraph.model.errors import AlreadyRunningError
from idgraph.model.jobs import JobKind, JobRecord, JobState, Progress, Requester, download_of
from idgraph.model.snapshots import MetadataSnapshot
from profile_service.visibility import restrictions

CONTENT = b'{"id":"user_id:3474"}\n'


class ScriptedDownload(NamedTuple):
    """A document in memory."""

    content: bytes
    expires_ms: int
    rules: str

    @property
    def parts(self) -> Callable[[], Iterator[bytes]]:
        return lambda: iter([self.content])


class ScriptedOperations:
    """`Jobs` that go on when `step` says so."""

    kinds = JOBS

    def __init__(self, snapshot: Callable[[], MetadataSnapshot]) -> None:
        self._snapshot = snapshot
        self._jobs: dict[str, JobRecord] = {}
        self.error = ""
        self.dead_letters: list[str] = []

    def start(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = 100
    ) -> JobRecord:
        if any(each.kind is kind and each.state is JobState.RUNNING for each in self._jobs.values()):
            raise AlreadyRunningError(f"this {kind} is running already")
        self.dead_letters = list(parameters.get("dead_letters", ()))
        now = int(time.time() * 1000)
        is_export = kind is JobKind.EXPORT
        stated = {
            "format": parameters.get("form"),
            "segment": parameters.get("segment"),
            "clearance": clearance,
        }
        record = JobRecord(
            f"{len(self._jobs):012x}",
            kind,
            download_of(origin.who) if is_export else "",
            stated if is_export else {"repair": parameters.get("repair", False)},
            origin,
            JobState.RUNNING,
            now,
            now,
            Progress(total=200, unit="profile" if is_export else "fragment", begun_at=now - 1000),
        )
        self._jobs[record.id] = record
        return record

    def step(self, done: int, state: JobState = JobState.RUNNING) -> None:
        """The newest job has done so much."""
        record = self.records()[0]
        progress = replace(record.progress, done=done)
        self._jobs[record.id] = replace(
            record, state=state, progress=progress, updated=int(time.time() * 1000)
        )

    def records(self) -> list[JobRecord]:
        return list(self._jobs.values())[::-1]

    def record(self, job_id: str) -> JobRecord | None:
        return self._jobs.get(job_id)

    def private(self, record: JobRecord) -> Mapping[str, Any]:
        return {"error": self.error if record.state is JobState.FAILED else "", "notes": {}}

    def cancel(self, job_id: str) -> bool:
        record = self._jobs[job_id]
        if record.state is JobState.RUNNING:
            self._jobs[job_id] = replace(record, is_cancel_requested=True)
        return record.state is JobState.RUNNING

    def download(self, job_id: str) -> ScriptedDownload | None:
        rules = restrictions(self._snapshot())
        return ScriptedDownload(CONTENT, int(time.time() * 1000) + 3_600_000, rules) if job_id else None
