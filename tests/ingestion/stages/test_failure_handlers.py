"""The fate of changes that cannot be committed."""

from __future__ import annotations

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import FlowStoppedError
from ingestion.stages.dead_letters import to_set_aside
from merge.commit import CommitFailure
from merge.fragments import FragmentState

FAILURES = [
    CommitFailure(name, DeadLetterReason.REFUSED_BY_STORE, "too large", FragmentState())
    for name in ("user_id:1", "user_id:2")
]


def test_they_become_dead_letters() -> None:
    assert to_set_aside("dead_letter", FAILURES) == FAILURES


def test_stop_names_the_fragment_and_the_reason() -> None:
    assert to_set_aside("stop", []) == []
    with pytest.raises(FlowStoppedError, match=r"user_id:1 .*refused_by_store: too large.*read again"):
        to_set_aside("stop", FAILURES)
