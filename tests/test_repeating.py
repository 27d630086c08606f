"""Steps that a thread repeats: their pauses, their failures, and their end."""

from __future__ import annotations

import logging
import threading

import pytest

from idgraph.model.backoff import Backoff
from idgraph.model.errors import StoreError
from idgraph.repeating import Outage, Repeating

AT_ONCE = Backoff(base=0.0)


def unexpected(error: Exception) -> None:
    raise AssertionError from error


def test_a_step_is_repeated_until_the_thread_is_closed() -> None:
    steps: list[int] = []
    enough = threading.Event()

    def step() -> None:
        steps.append(len(steps))
        if len(steps) == 3:
            enough.set()

    with Repeating("test", step, unexpected, last=lambda: steps.append(-1)):
        assert enough.wait(60)
    assert steps == [*range(len(steps) - 1), -1]


def test_a_pause_ends_when_the_thread_is_closed() -> None:
    begun = threading.Event()
    repeating = Repeating("test", begun.set, unexpected, pause=3600)
    with repeating:
        assert begun.wait(60)
    assert repeating.close(0)


def test_a_step_that_fails_is_reported_and_retried_ever_later() -> None:
    failed: list[Exception] = []
    attempts: list[int] = []
    outcomes = iter((KeyError(), StoreError(), None, KeyError()))
    done = threading.Event()

    class Noted(Backoff):
        def pause(self, attempt: int) -> float:
            attempts.append(attempt)
            return 0.0

    def step() -> float | None:
        if error := next(outcomes, None):
            raise error
        if len(failed) < 3:
            return None
        done.set()
        return 3600.0

    with Repeating("test", step, failed.append, backoff=Noted()):
        assert done.wait(60)
    assert [type(each) for each in failed] == [KeyError, StoreError, KeyError]
    assert attempts == [0, 1, 0], "a step that succeeds ends the retries"


def test_the_end_of_a_thread_waits_no_longer_than_it_may() -> None:
    go_on, begun = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        go_on.wait(60)
        raise StoreError("the service is away")

    repeating = Repeating("test", step, unexpected, backoff=AT_ONCE)
    with repeating:
        assert begun.wait(60)
        assert not repeating.close(0)
        go_on.set()
    assert repeating.close(0), "a failure after the stop is none"


def test_an_outage_is_logged_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("the store")
    for error in (StoreError("no disk"), StoreError("no disk"), KeyError("secret")):
        outage.show_error(error, "it waits")
    outage.is_over()
    outage.is_over()
    assert [(each.levelno, each.message) for each in caplog.records] == [
        (logging.WARNING, "no disk; it waits"),
        (logging.ERROR, "KeyError; it waits"),
        (logging.WARNING, "the store is back"),
    ]
