"""Who decides what becomes of changes that cannot be committed."""

from __future__ import annotations

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConfigError, FlowStoppedError
from ingestion.stages.dead_letters import failure_handler, to_set_aside
from merge.fragments import FragmentState
from merge.isolation import CommitFailure, Verdict

FAILURES = [
    CommitFailure(name, DeadLetterReason.REFUSED_BY_STORE, "too large", FragmentState())
    for name in ("user_id:1", "user_id:2")
]


class Keeping:
    """Takes the first, sets others aside."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def __call__(self, failure: CommitFailure) -> Verdict:
        if self.kept:
            return Verdict.SET_ASIDE
        self.kept.append(failure.fragment_id)
        return Verdict.TAKEN


def failing(failure: CommitFailure) -> Verdict:
    raise OSError("its own queue is away")


def test_dead_letters_are_the_default() -> None:
    assert to_set_aside(failure_handler("dead_letter"), FAILURES) == FAILURES


def test_stop_names_the_fragment_and_the_reason() -> None:
    with pytest.raises(FlowStoppedError, match=r"user_id:1 .*refused_by_store: too large.*read again"):
        to_set_aside(failure_handler("stop"), FAILURES)


def test_a_handler_of_ones_own_by_its_place_in_the_code() -> None:
    handler = failure_handler(f"{__name__}:Keeping")
    assert to_set_aside(handler, FAILURES) == FAILURES[1:]
    with pytest.raises(OSError, match="queue"):
        to_set_aside(failure_handler(f"{__name__}:failing"), FAILURES)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("nobody", "no such handler"),
        ("no.such.module:handler", "ModuleNotFoundError"),
        (f"{__name__}:nothing", "AttributeError"),
        (f"{__name__}:FAILURES", "not callable"),
    ],
)
def test_what_is_no_handler_is_reported_with_the_key(name: str, reported: str) -> None:
    with pytest.raises(ConfigError, match=f"flow.on_failure: {name}.*{reported}"):
        failure_handler(name)
