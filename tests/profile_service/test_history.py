"""Merges and splits as readers see them: ids of fragments that exist, and whose history they are."""

from __future__ import annotations

import hashlib

from idgraph.model.store import NEW, Assignment, FragmentWrite
from profile_service.history import History, ProfilePeriod
from tests.support.memory.profiles import MemoryProfileStore


def hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_kinds_and_periods_of_a_fragment() -> None:
    store = MemoryProfileStore(hashed)
    store.write([FragmentWrite(each, NEW, b"1", frozenset({each})) for each in ("a:1", "a:2", "a:3")])
    for epoch, profiles in enumerate([("a:1", ""), ("a:3", "a:1"), ("", "a:3")]):
        store.assign([Assignment("a:2", epoch, *profiles, epoch + 1)])
        store.assign([Assignment(each, epoch, "") for each in ("a:1", "a:3")])
    history = History(store, str.upper)
    assert [(each.kind, each.previous, each.profile) for each in history.moves()] == [
        ("merged", "A:2", "A:1"),
        ("moved", "A:1", "A:3"),
        ("split", "A:3", "A:2"),
    ]
    first, *_ = history.moves()
    assert [each.kind for each in history.moves(first.cursor)] == ["moved", "split"]
    assert history.periods(["a:1", "a:2"]) == {
        "A:1": [ProfilePeriod("A:1", None, None)],
        "A:2": [
            ProfilePeriod("A:2", None, 1),
            ProfilePeriod("A:1", 1, 2),
            ProfilePeriod("A:3", 2, 3),
            ProfilePeriod("A:2", 3, None),
        ],
    }


def test_who_comes_back_after_an_erasure_has_a_new_history() -> None:
    store = MemoryProfileStore(hashed)
    store.write([FragmentWrite(each, NEW, b"1", frozenset({each})) for each in ("a:1", "a:2")])
    store.assign([Assignment("a:2", 0, "a:1", "", 10), Assignment("a:1", 0, "", "", 10)])
    (erased,) = store.erase(["a:2"], 20)
    store.write([FragmentWrite("a:2", erased.version, b"2", frozenset({"a:2"}), 20)])
    history = History(store, str)
    assert history.periods(["a:2"]) == {"a:2": [ProfilePeriod("a:2", None, None)]}
    store.assign([Assignment("a:2", 0, "a:1", "", 30)])
    gone = f"~{hashed('a:2').hex()}"
    assert [(each.fragment, each.previous, each.profile) for each in history.moves()] == [
        (gone, gone, "a:1"),
        ("a:2", "a:2", "a:1"),
    ]
    assert history.periods(["a:2"]) == {
        "a:2": [ProfilePeriod("a:2", None, 30), ProfilePeriod("a:1", 30, None)],
    }
