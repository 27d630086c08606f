"""Changes that cannot be committed, and what a handler decides about them (`flow.on_failure`)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from idgraph.model.dead_letters import DeadLetterReason
from merge.fragments import FragmentState


class CommitFailure(NamedTuple):
    """A change that some events ask of a fragment, and why it failed. `detail` holds no value; values that
    policy protects are sealed in `change`."""

    fragment_id: str
    reason: DeadLetterReason
    detail: str
    change: FragmentState


class Verdict(StrEnum):
    """The handling of a failure."""

    SET_ASIDE = "set_aside"
    """It becomes a dead letter, from which it can be replayed."""
    STOP = "stop"
    """The flow stops; its micro-batch is not marked done and is retried."""
    TAKEN = "taken"
    """The handler has put the changes where they are safe, whatever crashes."""


FailureHandler = Callable[[CommitFailure], Verdict]
"""Runs in a worker process. It may be asked of the same failure again, when a micro-batch is retried. What it
raises stops the flow."""


def set_aside(_: CommitFailure) -> Verdict:
    """Every failure becomes a dead letter."""
    return Verdict.SET_ASIDE


def stop(_: CommitFailure) -> Verdict:
    """Any failure stops the flow."""
    return Verdict.STOP
