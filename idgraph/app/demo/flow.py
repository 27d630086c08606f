"""The demo's flow, beside what the demo shows of it."""

from __future__ import annotations

import threading

from idgraph.app.settings.document import Settings
from idgraph.model.errors import IdgraphError
from ingestion.sources.intake import Intake
from ingestion.stages.outcomes import BatchReport, StageReport


class RunningFlow:
    """The flow in a thread, and what it reported so far."""

    def __init__(self, settings: Settings) -> None:
        self.counts = StageReport()
        self.seconds = 0.0
        self.failure: IdgraphError | None = None
        self._settings = settings
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="flow")

    def __enter__(self) -> RunningFlow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        from idgraph.app.flow_runner import run_flow

        try:
            run_flow(self._settings, self._stop, Intake(), self._take)
        except IdgraphError as error:
            self.failure = error
        finally:
            with self._changed:
                self._changed.notify_all()

    def _take(self, report: BatchReport) -> None:
        with self._changed:
            self.counts.add(report.counts)
            self.seconds += report.seconds
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for the next report, at most so long. Raises what stopped the flow."""
        with self._changed:
            self._changed.wait(seconds)
        if self.failure is not None:
            raise self.failure
        if not self._thread.is_alive():
            raise IdgraphError("the flow ended unexpectedly")
