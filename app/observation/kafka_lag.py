"""The lag of a flow from Kafka, asked for beside it: a broker that is away must hold up no scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.observation.flow_metrics import PartitionLag
from model.errors import IdgraphError

LOOK_SECONDS = 15.0
EARLY_SECONDS = 1.0
"""Before there is anything to tell: Spark starts, nothing was taken yet."""


class LagWatch:
    """Asks every LOOK_SECONDS, at first every EARLY_SECONDS. Use as a context manager."""

    def __init__(self, ask: Callable[[], list[PartitionLag]]) -> None:
        self._ask = ask
        self._latest: list[PartitionLag] | IdgraphError = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def __enter__(self) -> LagWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def latest(self) -> list[PartitionLag]:
        """What was found last. Raises what the asking raised."""
        if isinstance(self._latest, IdgraphError):
            raise self._latest.with_traceback(None)
        return self._latest

    def _run(self) -> None:
        while True:
            try:
                self._latest = self._ask()
            except IdgraphError as error:
                self._latest = error
            except Exception as error:
                self._latest = IdgraphError(type(error).__name__)
            if self._stop.wait(EARLY_SECONDS if self._latest == [] else LOOK_SECONDS):
                return
