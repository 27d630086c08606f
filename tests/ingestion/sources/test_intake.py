"""A throttle that holds micro-batches back, and lets a stop through at once."""

from __future__ import annotations

import threading
import time

from ingestion.sources.stream import Throttle


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class _Stop(threading.Event):
    """Never set; waiting lets the clock go on."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.now += timeout
        return False


def test_the_next_micro_batch_waits_until_the_rate_is_kept() -> None:
    clock = _Clock()
    throttle = Throttle(100, clock)
    throttle.took(1000, began=clock.now)
    clock.now += 3
    throttle.wait(_Stop(clock))
    assert clock.now == 110


def test_what_was_slow_is_not_caught_up_with() -> None:
    clock = _Clock()
    throttle = Throttle(100, clock)
    throttle.took(100, began=clock.now)
    clock.now += 50
    began = clock.now
    throttle.wait(_Stop(clock))
    assert clock.now == began
    throttle.took(500, began)
    throttle.wait(_Stop(clock))
    assert clock.now == began + 5


def test_without_a_rate_nothing_waits() -> None:
    clock = _Clock()
    throttle = Throttle(None, clock)
    throttle.took(1_000_000, clock.now)
    throttle.wait(_Stop(clock))
    assert clock.now == 100


def test_a_stop_ends_the_wait() -> None:
    throttle = Throttle(1)
    throttle.took(1_000_000, time.monotonic())
    stop = threading.Event()
    stop.set()
    throttle.wait(stop)
