"""A query that rests does not look for input, and looks at once where there are traces of some."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ingestion.spark.query import Rest
from tests.support.patience import eventually

NEVER = 3600.0


class Lock:
    """Java's `ReentrantLock`, as far as a rest uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._queued = 0

    def lock(self) -> None:
        with self._counting:
            self._queued += 1
        self._lock.acquire()
        with self._counting:
            self._queued -= 1

    def unlock(self) -> None:
        self._lock.release()

    def hasQueuedThreads(self) -> bool:  # noqa: N802 - Java's name
        with self._counting:
            return self._queued > 0


class Query:
    """Looks for input as Spark does: under the lock, and reports under it once more that there was nothing."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Query:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        # A test that failed may have its lock.
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            self.lock.lock()
            self.looks += 1
            self.lock.unlock()
            self.lock.lock()
            self.lock.unlock()


@pytest.fixture
def query() -> Iterator[Query]:
    with Query() as running:
        yield running


def test_a_query_looks_once_more_when_it_begins_to_rest_and_then_not_again(query: Query) -> None:
    traces: list[object] = []
    looks_before: list[int] = []

    def find_traces() -> object:
        if not looks_before:
            looks_before.append(query.looks)
        return traces

    rest = Rest(query.lock, find_traces, NEVER)
    assert rest.wait(0.1, lambda: False, threading.Event())
    resting = query.looks
    assert resting > looks_before[0], "what came before the traces is found"
    assert rest.wait(0.2, lambda: False, threading.Event())
    assert query.looks == resting
    rest.end()
    eventually(lambda: query.looks > resting + 10)


def test_traces_of_input_end_the_rest(query: Query) -> None:
    traces = [0]
    rest = Rest(query.lock, lambda: traces[0], NEVER)
    assert rest.wait(0.1, lambda: False, threading.Event())
    resting = query.looks
    traces[0] = 1
    assert not rest.wait(60, lambda: False, threading.Event())
    eventually(lambda: query.looks > resting + 10)


def test_input_without_traces_is_looked_for_now_and_then(query: Query) -> None:
    rest = Rest(query.lock, lambda: None, 0.01)
    rest.wait(0.1, lambda: False, threading.Event())
    resting = query.looks
    eventually(lambda: rest.wait(0.1, lambda: False, threading.Event()) and query.looks > resting + 2)
    rest.end()


def test_a_micro_batch_and_a_stop_end_the_wait(query: Query) -> None:
    began, stop = threading.Event(), threading.Event()
    rest = Rest(query.lock, lambda: None, NEVER)
    waiting = threading.Thread(target=rest.wait, args=(NEVER, began.is_set, stop), daemon=True)
    waiting.start()
    began.set()
    waiting.join(60)
    assert not waiting.is_alive()
    eventually(lambda: query.looks > 10)
    stop.set()
    assert rest.wait(NEVER, lambda: False, stop), "there were no traces"
    rest.end()
    rest.end()


def test_a_query_that_does_not_come_for_its_lock_is_not_waited_for_long() -> None:
    """It is in a micro-batch, or has ended."""
    rest = Rest(Lock(), lambda: None, 0.01)
    assert rest.wait(0.05, lambda: False, threading.Event())
    rest.end()
