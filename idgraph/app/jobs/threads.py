"""Jobs that a service starts: each in a thread, with stores of its own."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from queue import Queue
from typing import TYPE_CHECKING, Any

from idgraph.app import wiring
from idgraph.app.jobs.context import HIGHEST, LocalJobContext
from idgraph.jobs.export import FOLDER
from idgraph.jobs.job import Job, Pace, Run
from idgraph.jobs.kind import rate_of
from idgraph.jobs.table import JOBS
from idgraph.model.jobs import JobKind, JobRecord, JobState, Requester

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.downloads import Download
    from idgraph.snapshot_file import PinnedSnapshot


class JobThreads:
    """The jobs of one service. A context manager; leaving it stops them at their next page, where they resume, and waits for
    them."""

    kinds = JOBS

    def __init__(self, settings: Settings, pinned: Callable[[], PinnedSnapshot]) -> None:
        self._settings = settings
        self._pinned = pinned
        self._downloads = wiring.downloads(settings)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> JobThreads:
        self._downloads.sweep()
        folder = self._settings.directory / FOLDER
        for left in (*folder.glob("*"), *folder.glob(".*"), *self._downloads.unfinished()):
            # Of a service that was killed; another one may be running.
            record = self.record(left.name.strip(".").removesuffix(".part"))
            if record is None or record.state is not JobState.RUNNING:
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def start(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = HIGHEST
    ) -> JobRecord | None:
        """Start a job, or resume the last one of its kind and parameters; None if there is nothing to do. Raises
        AlreadyRunningError, QueryError, and what stores raise."""
        type_of = self.kinds[kind]
        stated = type_of.parameters.model_validate(dict(parameters))
        return self._started(
            lambda context: type_of.prepare(stated, context), origin, clearance, rate_of(stated)
        )

    def records(self) -> list[JobRecord]:
        """All jobs of the installation, whoever started them, the newest first."""
        with wiring.job_log(self._settings) as log:
            return list(log.scan())

    def record(self, job_id: str) -> JobRecord | None:
        """One of them."""
        with wiring.job_log(self._settings) as log:
            return log.get(job_id)

    def private(self, record: JobRecord) -> Mapping[str, Any]:
        """Its examples (`notes`) and error, which may name persons and attributes."""
        with wiring.job_runner(self._settings) as runner:
            return runner.private(record)

    def cancel(self, job_id: str) -> bool:
        """Ask it to end at its next page; False if it is not running."""
        with wiring.job_log(self._settings) as log:
            return log.cancel(job_id)

    def download(self, job_id: str) -> Download | None:
        """The document that it left; None before its end, and after it expired."""
        return self._downloads.read(job_id)

    def _started(
        self,
        prepare: Callable[[LocalJobContext], Job | None],
        origin: Requester,
        clearance: int = HIGHEST,
        rate: int | None = None,
    ) -> JobRecord | None:
        """The record of the job, once a thread has begun it; what failed before is raised here."""
        begun: Queue[JobRecord | Exception | None] = Queue()

        def run() -> None:
            try:
                with ExitStack() as stack:
                    context = LocalJobContext(self._settings, stack, origin, clearance, current=self._pinned)
                    job = prepare(context)
                    if job is None:
                        begun.put(None)
                        return

                    def watch(run: Run) -> None:
                        if context.run is None:
                            context.run = run
                            begun.put(context.runner.log.get(run.id))

                    pace = Pace(rate, stop=self._stop)
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
