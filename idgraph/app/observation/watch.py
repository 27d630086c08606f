"""What a scrape shows but does not ask for: a broker or a store that is away must hold up none, nor be asked as often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from idgraph.model.errors import IdgraphError

T = TypeVar("T")

EARLY_SECONDS = 1.0
"""Before there is anything to report: Spark starts, nothing was taken yet."""

_ENDING_SECONDS = 2.0


class Watch(Generic[T]):
    """Asks every `seconds` on a thread of its own, every EARLY_SECONDS while the answer is `nothing`. Use as a context
    manager."""

    def __init__(self, ask: Callable[[], T], nothing: T, seconds: float) -> None:
        self._ask = ask
        self._nothing = nothing
        self._seconds = seconds
        self._latest: T | IdgraphError = nothing
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        # What it asks is closed next.
        self._thread.join(_ENDING_SECONDS)

    def latest(self) -> T:
        """What was found last, `nothing` before. Raises what the asking raised."""
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
            if self._stop.wait(EARLY_SECONDS if self._latest == self._nothing else self._seconds):
                return
