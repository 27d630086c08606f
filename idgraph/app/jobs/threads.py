"""Jobs that a service starts: each in a thread, with stores of its own."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Queue
from typing import TYPE_CHECKING, Any, cast

from cachetools import FIFOCache

from idgraph.app import wiring
from idgraph.app.adapters.shared_state import job_log, open_documents
from idgraph.app.jobs.context import HIGHEST, LocalJobContext
from idgraph.jobs.export import FOLDER
from idgraph.jobs.job import Pace, Run
from idgraph.jobs.kind import rate_of
from idgraph.jobs.table import JOBS
from idgraph.model import canonical
from idgraph.model.errors import MetadataError
from idgraph.model.jobs import JobKind, JobRecord, JobState, Requester
from idgraph.web.cursors import SealedCursors
from idgraph.web.refusals import BadQueryError, NotReadyError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.jobs import Download
    from idgraph.model.snapshots import PinnedSnapshot
    from idgraph.model.specs import SpecDefinition
    from transforms.spec.operation_moves import Place

MOST_RESULTS = 20
RESULTS = "results/"
"""The beginning of the names of results that several processes share. They sort by time."""


class JobThreads:
    """The jobs of one service. A context manager; leaving it stops them at their next page, where they resume, and waits for
    them."""

    kinds = JOBS

    def __init__(
        self,
        settings: Settings,
        pinned: Callable[[], PinnedSnapshot],
        protected_places: Callable[[SpecDefinition], Mapping[Place, bool]] = lambda _: {},
        secret: bytes | None = None,
    ) -> None:
        """`protected_places` of a spec's input, by all versions of all specs; raises MetadataError. `secret`, of 64 bytes, is that of
        the processes that share results."""
        self._documents = open_documents(settings)
        self._sealed = None if secret is None else SealedCursors(secret)
        self.protected_places = protected_places
        self._settings = settings
        self._pinned = pinned
        self._results: FIFOCache[str, Mapping[str, Any]] = FIFOCache(MOST_RESULTS)
        self._downloads = wiring.downloads(settings, self._documents)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> JobThreads:
        self._downloads.sweep()
        folder = self._settings.directory / FOLDER
        # Left by a service that was killed; another one may be running.
        for left in (*folder.glob("*"), *folder.glob(".*")):
            if not self._is_running(left.name.strip(".").removesuffix(".part")):
                shutil.rmtree(left, ignore_errors=True)
        for job_id in self._downloads.unfinished():
            if not self._is_running(job_id):
                self._downloads.remove(job_id)
        return self

    def _is_running(self, job_id: str) -> bool:
        record = self.record(job_id)
        return record is not None and record.state is JobState.RUNNING

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._documents.close()

    def start(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = HIGHEST
    ) -> JobRecord | None:
        """Start a job, or resume the last one of its kind and parameters; None if there is nothing to do.
        Raises AlreadyRunningError, QueryError, and the errors of stores."""
        begun: Queue[JobRecord | Exception | None] = Queue()
        type_of = self.kinds[kind]
        stated = type_of.parameters.model_validate(dict(parameters))

        def run() -> None:
            try:
                with self._context(origin, clearance) as context:
                    job = type_of.prepare(stated, context)
                    if job is None:
                        begun.put(None)
                        return

                    def watch(run: Run) -> None:
                        if not context.job_id:
                            context.job_id = run.id
                            begun.put(context.runner.log.get(run.id))

                    pace = Pace(rate_of(stated), stop=self._stop)
                    context.runner.run(job, origin, pace=pace, watch=watch)
            except Exception as error:
                # The job's record has what happened after it began.
                begun.put(error)

        thread = threading.Thread(target=run, name="job", daemon=True)
        with self._lock:
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]
            thread.start()
        first = begun.get()
        if isinstance(first, Exception):
            raise first
        return first

    def preview(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = HIGHEST
    ) -> Mapping[str, Any] | None:
        """The effects that a job would have; changes nothing. None if there is nothing to do. Raises as
        `start` does."""
        look = self.kinds[kind].preview
        if look is None:
            raise ValueError(f"a {kind} has no preview")
        with self._context(origin, clearance) as context:
            return look(self.kinds[kind].parameters.model_validate(dict(parameters)), context)

    def records(self) -> list[JobRecord]:
        """All jobs of the installation, whoever started them, the newest first."""
        with job_log(self._settings) as log:
            return list(log.scan())

    def record(self, job_id: str) -> JobRecord | None:
        """One of them."""
        with job_log(self._settings) as log:
            return log.get(job_id)

    def private(self, record: JobRecord) -> Mapping[str, Any]:
        """Its examples (`notes`) and error, which may name persons and attributes."""
        with wiring.job_runner(self._settings) as runner:
            return runner.private(record)

    def cancel(self, job_id: str) -> bool:
        """Ask it to end at its next page; False if it is not running."""
        with job_log(self._settings) as log:
            return log.cancel(job_id)

    def download(self, job_id: str) -> Download | None:
        """The document that it left; None before its end, and after it expired."""
        return self._downloads.read(job_id)

    def result(self, job_id: str) -> Mapping[str, Any] | None:
        """The result of a job; None before its end. A preview's result, whose examples name persons, lasts as long as the service: in
        the memory of this process, or for those beside it in a file that only they can open. The receipt of an erasure is in a
        file."""
        receipt = self._documents.read(_receipt(job_id))
        if receipt is not None:
            return cast(Mapping[str, Any], json.loads(receipt))
        if self._sealed is not None and job_id not in self._results:
            for name in self._documents.names(f"{RESULTS}*-{job_id}.sealed"):
                sealed = self._documents.read(name)
                with suppress(BadQueryError):
                    return cast(
                        Mapping[str, Any], json.loads(self._sealed.open((sealed or b"").decode(), job_id))
                    )
        return self._results.get(job_id)

    def keep_result(self, job_id: str, found: Mapping[str, Any], is_durable: bool) -> None:
        """Keep the result of a job."""
        if is_durable:
            self._documents.write(_receipt(job_id), canonical.encode(found) + b"\n")
            return
        with self._lock:
            self._results[job_id] = found
        if self._sealed is not None:
            sealed = self._sealed.seal(json.dumps(found), job_id).encode()
            self._documents.write(f"{RESULTS}{time.time_ns():020}-{job_id}.sealed", sealed)
            for old in self._documents.names(f"{RESULTS}*")[:-MOST_RESULTS]:
                self._documents.remove(old)

    def _context(self, origin: Requester, clearance: int) -> _ServedJobContext:
        return _ServedJobContext(
            self._settings, origin, stop=self._stop, clearance=clearance, current=self._pinned, jobs=self
        )


def _receipt(job_id: str) -> str:
    return f"receipts/{job_id}.json"


@dataclass(eq=False, kw_only=True)
class _ServedJobContext(LocalJobContext):
    """The context of a job whose requester asks the service for the result."""

    jobs: JobThreads
    job_id: str = ""
    """The id of the job, once it has begun."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.spread_from = math.inf
        self.deliver = self._keep_document

    def _keep_document(self, document: bytes, fragments: Sequence[str]) -> None:
        self.downloads.keep(self.job_id, document, fragments, self.download_hours)

    def keep(self, found: Mapping[str, Any], is_durable: bool = False) -> None:
        self.jobs.keep_result(self.job_id, found, is_durable)

    def protected_places(self, definition: SpecDefinition) -> Mapping[Place, bool]:
        try:
            return self.jobs.protected_places(definition)
        except MetadataError as error:
            raise NotReadyError(
                f"the values that earlier versions protected are not known: {error}"
            ) from None
