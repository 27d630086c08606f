"""An erasure while a flow commits the same person, under the name that a newer policy gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.jobs.erase.erasure import Erasure
from idgraph.model.dead_letters import FRAGMENT, DeadLetterReason
from idgraph.model.identifiers import Identifier
from idgraph.model.store import ProfileStore
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from sinks.tombstone_file import TombstoneFile
from tests.retail import NOW, UNDETECTED, Pipeline, attribute, order, snapshot
from tests.support.memory.profiles import MemoryProfileStore
from transforms.privacy.protected_names import TombstoneNames

PLAIN = "email:p1@example.com"
BEFORE = snapshot(1, declared=[attribute("identity.email")], defaults=UNDETECTED)
AFTER = snapshot(2)


class Interrupted:
    """A store with something that happens right before one of the calls to it, counted from 1."""

    def __init__(self, store: ProfileStore, call: int, between: Callable[[], object]) -> None:
        self._store = store
        self._between = between
        self.left = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._store, name)

        def called(*given: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self._between()
            return method(*given)

        return called


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_what_a_flow_makes_under_the_other_name_meanwhile_goes_as_well(tmp_path: Path, call: int) -> None:
    pipeline = Pipeline(tmp_path, snapshot=BEFORE)
    names = TombstoneNames(pipeline.provider)
    pipeline.store = MemoryProfileStore(names)
    pipeline.process([order(1)])
    assert [each.id for each in pipeline.store.scan()] == [PLAIN]
    pipeline.snapshot = AFTER
    dead_letters = DeadLetterSearch(pipeline.sources, AFTER, pipeline.blind_index, pipeline.sealer.open)
    resources = pipeline.resources()
    store = Interrupted(pipeline.store, call, lambda: pipeline.process([order(1)]))
    resources.store = cast("ProfileStore", store)
    tombstones = TombstoneFile(tmp_path / "tombstones.jsonl")
    erasure = Erasure(resources, tombstones, names, lambda: dead_letters, pipeline.rules)

    with closing(resources.dead_letters):
        erasure.erase([PLAIN], int(NOW * 1000))

    assert store.left <= 0
    assert list(pipeline.store.scan()) == []
    assert pipeline.store.unfinished() == []
    hashed = str(pipeline.blind_index.identifier(Identifier.parse(PLAIN)))
    assert pipeline.key_store.get([PLAIN, hashed]) == {}
    assert pipeline.index.versions([PLAIN, hashed]).keys() == set()
    pipeline.process([order(1)])
    assert pipeline.store.count() == 0


def test_changes_that_are_set_aside_under_the_other_name_go_as_well(tmp_path: Path) -> None:
    """Found by the convergence machine (seed 726010374): changes by an event that takes another one back carry no identifier,
    and stood as a dead letter of a name that only a newer policy gives. It stayed, with its key."""
    pipeline = Pipeline(tmp_path, snapshot=BEFORE)
    names = TombstoneNames(pipeline.provider)
    pipeline.store = MemoryProfileStore(names)
    pipeline.process([order(1)])
    resources = pipeline.resources()
    hashed = str(pipeline.blind_index.identifier(Identifier.parse(PLAIN)))
    refused = CommitFailure(hashed, DeadLetterReason.REFUSED_BY_STORE, "refused", FragmentState())
    resources.dead_letters.put(
        DeadLetterWriter(pipeline.sealer).of_failures([refused], 2, BatchAttempt("main/1", "first"))
    )
    search = DeadLetterSearch(pipeline.sources, AFTER, pipeline.blind_index, pipeline.sealer.open)
    tombstones = TombstoneFile(tmp_path / "tombstones.jsonl")
    with closing(resources.dead_letters) as dead_letters:
        assert [each.position for each in dead_letters.scan()] == [f"{FRAGMENT}{hashed}"]
        Erasure(resources, tombstones, names, lambda: search, pipeline.rules).erase([PLAIN], int(NOW * 1000))
        assert list(dead_letters.scan()) == []
