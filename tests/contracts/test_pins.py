"""The promises of every store on pins (`idgraph.model.pins.Pins`)."""

from __future__ import annotations

from idgraph.model.pins import PinRecord
from idgraph.model.store import NEW, FragmentWrite, OutboxEntry, ProfileStore

APART = PinRecord("a:1", "b:1", 5, "never", "ann", "a shared device")
TAKEN_BACK = PinRecord("a:1", "b:1", 6, "none", "bob")
TOGETHER = PinRecord("b:1", "c:\N{SNOWMAN}", -7, "always")


def test_decisions_are_kept_and_found_by_either_identifier(store: ProfileStore) -> None:
    assert store.pins_of(["a:1"]) == []
    store.add_pins([APART, TOGETHER])
    store.add_pins([TAKEN_BACK, APART])
    assert sorted(store.pins()) == sorted([APART, TAKEN_BACK, TOGETHER])
    assert sorted(store.pins_of(["b:1", "x:1"])) == sorted([APART, TAKEN_BACK, TOGETHER])
    assert store.pins_of(["c:\N{SNOWMAN}"]) == [TOGETHER]
    assert store.pins_of([]) == store.pins_of(["x:1"]) == []


def test_a_decision_given_twice_or_about_one_identifier_is_kept_once(store: ProfileStore) -> None:
    """Found by the convergence machine: identifiers that policy hashes may become one."""
    alone = PinRecord("a:1", "a:1", 7, "never")
    store.add_pins([alone, APART, alone])
    assert sorted(store.pins()) == sorted(store.pins_of(["a:1"])) == sorted([APART, alone])
    store.drop_pins(["a:1"])
    assert list(store.pins()) == []


def test_what_names_an_erased_person_is_forgotten(store: ProfileStore) -> None:
    store.add_pins([APART, TAKEN_BACK, TOGETHER])
    store.drop_pins(["a:1"])
    assert list(store.pins()) == store.pins_of(["b:1"]) == [TOGETHER]
    store.drop_pins(["c:\N{SNOWMAN}", "x:1"])
    assert list(store.pins()) == []


def test_fragments_are_enqueued_in_versions_of_their_own(store: ProfileStore) -> None:
    store.write([FragmentWrite("a:1", NEW, b"1", frozenset()), FragmentWrite("a:2", NEW, b"1", frozenset())])
    store.settle([OutboxEntry("a:1", 1), OutboxEntry("a:2", 1)])
    store.enqueue(["a:1", "a:3"])
    store.enqueue([])
    (entry,) = store.outbox()
    assert entry == OutboxEntry("a:1", 2)
    assert store.read(["a:1"])["a:1"].version == 2
    # Of a projection that has read the fragment before.
    store.settle([OutboxEntry("a:1", 1)])
    assert store.outbox() == [entry]
    store.settle([entry])
    assert store.outbox() == []
