"""What a fragment shows, case by case."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from idgraph.model.errors import DamagedStateError, StoreError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp
from merge import codec
from merge.fragments import FragmentState
from merge.resolution import tree

SPEC = SpecRef("spec", 1)


def change(
    ordinal: int, values: dict[str, Any], source: str = "shop", scope: str | None = None
) -> FragmentChange:
    origin = Origin(Stamp(0, ordinal, source, f"{source}-{ordinal}"), SPEC)
    mutations = {
        path: Register(origin, Kind.DELETED if value is None else Kind.PLAIN, value)
        for path, value in values.items()
    }
    return FragmentChange("user_id:1", origin, mutations, (Identifier("user_id", "1"),), scope)


def shown(*changes: FragmentChange) -> dict[str, Any]:
    state = FragmentState()
    for one in changes:
        state.apply(one)
    state.normalise()
    return tree((path, register.value) for path, register in state.visible())


def test_the_latest_ordinal_wins_not_the_latest_arrival() -> None:
    assert shown(change(2, {"a": "new"}), change(1, {"a": "old"})) == {"a": "new"}


def test_null_deletes_and_stays_deleted_for_late_events() -> None:
    assert shown(change(3, {"a": None}), change(2, {"a": 1}), change(4, {"b": 1})) == {"b": 1}


def test_null_deletes_what_lies_below() -> None:
    assert shown(change(1, {"a.b": 1, "a.c": 2}), change(2, {"a": None})) == {}


def test_a_leaf_replaces_an_older_subtree() -> None:
    assert shown(change(2, {"a": "leaf"}), change(1, {"a.b": 1, "a.c": 2})) == {"a": "leaf"}


def test_a_newer_leaf_below_replaces_the_leaf_and_only_it_shows() -> None:
    assert shown(change(1, {"a.b": 1}), change(3, {"a.c": 3}), change(2, {"a": "leaf"})) == {"a": {"c": 3}}


def test_a_key_with_a_dot_is_not_a_subtree() -> None:
    assert shown(change(1, {"a\\.b": 1}), change(2, {"a": 2})) == {"a.b": 1, "a": 2}


def test_a_snapshot_deletes_what_its_source_no_longer_sends() -> None:
    assert shown(change(1, {"p.x": 1, "p.y": 2, "q": 3}), change(2, {"p.x": 9}, scope="p")) == {
        "p": {"x": 9},
        "q": 3,
    }


def test_a_snapshot_leaves_other_sources_alone() -> None:
    assert shown(
        change(1, {"p.x": 1}, source="crm"), change(5, {"p.y": 2}), change(6, {"p.z": 3}, scope="p")
    ) == {"p": {"x": 1, "z": 3}}


def test_what_a_snapshot_deleted_does_not_uncover_older_values_of_others() -> None:
    late = change(1, {"p.x": "older"}, source="crm")
    assert shown(change(2, {"p.x": "mine"}), change(3, {}, scope="p"), late) == {}
    assert shown(late, change(2, {"p.x": "mine"}), change(3, {}, scope="p")) == {}


def test_a_late_snapshot_does_not_delete_newer_values() -> None:
    assert shown(change(5, {"p.x": 5}), change(2, {"p.y": 2}, scope="p")) == {"p": {"x": 5, "y": 2}}


def test_numbers_keep_their_exact_value_through_bytes() -> None:
    from decimal import Decimal

    state = FragmentState()
    state.apply(
        change(1, {"big": 2**80, "exact": Decimal("0.1000000000000000055511151231257827"), "f": 79.99})
    )
    again = FragmentState.decode(state.encode())
    assert {path: register.value for path, register in again.registers.items()} == {
        "big": 2**80,
        "exact": Decimal("0.1000000000000000055511151231257827"),
        "f": 79.99,
    }


def _whole(body: bytes, version: bytes = codec.FORMAT) -> bytes:
    return version + crc32(body, crc32(version)).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{}",
        b"\x01",
        b"\x01\0\0\0\0",
        _whole(b"[["),
        _whole(b'[[],{"a":[7,1,1]},[],{},{}]'),
        _whole(b'[[[0,0,"","","",1]],{"a":[0,9,1]},[],{},{}]'),
        _whole(b'[[],{"a\xff":[7,1,1]},[],{},{}]'),
        _whole(b'[[[0,0,"","","",1]],{"a":[0,1,1e99999]},[],{},{}]'),
    ],
)
def test_damaged_state_is_an_error_of_ours(damaged: bytes) -> None:
    with pytest.raises(DamagedStateError):
        FragmentState.decode(damaged)


def test_every_flipped_bit_is_seen() -> None:
    state = FragmentState()
    state.apply(change(1, {"a": "text", "b": 12, "c": [1.5, None]}))
    state.normalise()
    data = state.encode()
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(DamagedStateError):
                FragmentState.decode(bytes(flipped))


def test_a_later_format_stops_the_reader() -> None:
    body = b"whatever it will be"
    with pytest.raises(StoreError, match="format 4") as caught:
        FragmentState.decode(_whole(body, b"\x04"))
    assert not isinstance(caught.value, DamagedStateError)
