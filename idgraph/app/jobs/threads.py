"""Jobs that a service starts: each in a thread, with stores of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from queue import Queue
from typing import NamedTuple

from idgraph.jobs.job import Job, JobRunner, Pace, PagedJob, Run
from idgraph.model.jobs import JobKind, JobRecord, Requester


class ReadyJob(NamedTuple):
    """A job that is ready to run. `body` does the work of one that has no pages; `rate` bounds its units per second."""

    runner: JobRunner
    job: Job
    body: Callable[[Run], None] | None = None
    rate: float | None = None


Prepare = Callable[[ExitStack, Callable[[], str]], ReadyJob | None]
"""Opens what a job needs on a stack that ends with it; None if there is nothing to do. The function gives its id once it has
begun."""


class JobThreads:
    """The jobs of one service. A context manager; leaving it stops them at their next page, where they resume, and waits for
    them."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _started(self, prepare: Prepare, origin: Requester) -> JobRecord | None:
        """The record of the job, once a thread has begun it; what failed before is raised here."""
        begun: Queue[JobRecord | Exception | None] = Queue()
        ids: list[str] = []

        def run() -> None:
            try:
                with ExitStack() as stack:
                    ready = prepare(stack, lambda: ids[0])
                    if ready is None:
                        begun.put(None)
                        return
                    runner, job = ready.runner, ready.job
                    with runner.started(job, origin, pace=Pace(ready.rate, stop=self._stop)) as work:
                        ids.append(work.id)
                        begun.put(runner.log.get(work.id))
                        if ready.body is not None:
                            ready.body(work)
                        elif isinstance(job, PagedJob):
                            for point in job.pages(work.progress, work.point):
                                work.page(point)
                    if job.kind is JobKind.ERASE:
                        runner.forget_notes()
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
