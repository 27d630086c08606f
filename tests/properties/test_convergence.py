"""Law 1 with the real stages and stores; see `tests.convergence`, which also runs for hours, each
time with other events: here they are the same at each run."""

from __future__ import annotations

import pytest

from tests.convergence.machine import ActivityMachine, ConvergenceMachine, DynamoMachine, run
from tests.lanes import examples
from tests.servers.dynamodb import require_dynamodb


def test_every_disorder_ends_in_the_state_of_one_tidy_delivery() -> None:
    run(ConvergenceMachine, examples=examples(25, 8), steps=25, number=101)


def test_changed_activities_end_so() -> None:
    run(ActivityMachine, examples=examples(10, 4), steps=25, number=7)


@pytest.mark.long
def test_a_profile_that_loses_a_renamed_fragment_has_a_later_document() -> None:
    """Found by the machine: `idgraph seal` moved a fragment that was joined to another one of its profile."""
    run(ConvergenceMachine, examples=8, steps=40, number=807552936, shrinks=False)


@pytest.mark.long
def test_a_profile_that_rules_and_a_renamed_fragment_leave_at_once_has_a_later_document() -> None:
    """Found by the machine: a fragment was renamed before new rules were followed, and left its profile by these."""
    run(ConvergenceMachine, examples=50, steps=40, number=1361941698, shrinks=False)


@pytest.mark.long
def test_every_disorder_ends_so_in_dynamodb() -> None:
    require_dynamodb()
    run(DynamoMachine, examples=examples(3, 2), steps=examples(15, 8), number=5)
