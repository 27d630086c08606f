"""Work that a thread repeats in the background, and what is logged of anything that is away meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Self

from idgraph.model.backoff import Backoff
from idgraph.model.errors import IdgraphError

log = logging.getLogger(__name__)

FIELDS = "idgraph"
"""The attribute of a log record that has the fields of its message: `extra={FIELDS: {...}}`."""

RETRY = Backoff(base=0.2, cap=5.0, least=0.5)


class Repeating:
    """Takes a step again and again, in a thread of its own, until it is closed. A context manager.

    `step` returns the seconds until the next one; None means `pause`. An exception goes to `failed`, unless the thread is
    to stop, and the step is retried after a pause of `backoff`. `last` runs in the thread before it ends.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        failed: Callable[[Exception], object],
        *,
        pause: float = 0.0,
        backoff: Backoff = RETRY,
        last: Callable[[], object] = lambda: None,
    ) -> None:
        self._step = step
        self._failed = failed
        self._pause = pause
        self._backoff = backoff
        self._last = last
        self.stop = threading.Event()
        """Set when it is to end: a long step looks at it."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, seconds: float | None = None) -> bool:
        """Stop, and wait for the end for so many seconds, None: for however long it takes. Returns whether it has ended."""
        self.stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self.stop.is_set():
            try:
                pause = self._step()
                failures = 0
            except Exception as error:
                # Any error: a thread that dies in silence would do nothing ever again.
                if self.stop.is_set():
                    break
                self._failed(error)
                pause = self._backoff.pause(failures)
                failures += 1
            self.stop.wait(self._pause if pause is None else pause)
        try:
            self._last()
        except Exception as error:
            self._failed(error)


class Outage:
    """One thing that may be away, as one thread sees it: logged once, not at each try, and once more when it is back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._reported: str | None = None

    @property
    def is_on(self) -> bool:
        """Whether it failed when it was last tried."""
        return self._reported is not None

    def show_error(self, error: Exception, meanwhile: str, serious: tuple[type[Exception], ...] = ()) -> None:
        """It failed by this error, which is logged as an error if it is none of ours or one of the `serious` ones."""
        is_known = isinstance(error, IdgraphError) and not isinstance(error, serious)
        self.show_report(message_of(error), meanwhile, logging.WARNING if is_known else logging.ERROR)

    def show_report(self, reason: str, meanwhile: str, level: int = logging.WARNING) -> None:
        """It failed for this reason; `meanwhile` says what holds until it is back."""
        if reason != self._reported:
            self._reported = reason
            log.log(level, "%s; %s", reason, meanwhile)

    def is_over(self) -> None:
        """It worked."""
        if self._reported is not None:
            self._reported = None
            log.warning("%s is back", self.name)


def message_of(error: Exception) -> str:
    """The message of an error of ours. Only the type of any other: its message may quote a profile."""
    return str(error) if isinstance(error, IdgraphError) else type(error).__name__
