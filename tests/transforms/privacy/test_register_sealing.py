"""Sealing only what nothing later replaces gives what sealing everything gives (law 1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from merge.fragments import FragmentState
from merge.policies import POLICIES
from tests.properties.test_sealing import INDEX, KEY
from tests.retail import attribute, snapshot
from transforms.privacy.sealing import SealingKey
from transforms.privacy.stored_values import RegisterSealer
from transforms.schema.attribute_nodes import ValueToSeal
from transforms.schema.policy_tree import PolicyTree

NAME = "user_id:1"
SEALER = RegisterSealer(PolicyTree(snapshot()), INDEX)

origins = st.builds(
    lambda ordinal, event: Origin(Stamp(0, ordinal, "shop", event), SpecRef("s", 1)),
    st.integers(1, 3),
    st.sampled_from(["e1", "e2"]),
)
to_seal = st.lists(
    st.builds(ValueToSeal, st.sampled_from("abc"), st.integers(0, 2), st.booleans()),
    max_size=3,
    unique_by=lambda what: what.path,
)
events = st.lists(st.tuples(origins, to_seal), min_size=1, max_size=6)


def joined(
    start: dict[str, Register], found: list[tuple[Origin, dict[str, Register]]]
) -> dict[str, Register]:
    state = FragmentState()
    state.registers.update(start)
    for origin, mutations in found:
        state.apply(FragmentChange(NAME, origin, mutations, ()))
    return state.registers


@given(events, st.dictionaries(st.sampled_from("abc"), origins))
def test_the_join_is_the_same(
    given_events: list[tuple[Origin, list[ValueToSeal]]], before: dict[str, Origin]
) -> None:
    key = SealingKey(KEY, NAME)
    present = {path: Register(origin, Kind.PLAIN, "before") for path, origin in before.items()}
    latest = SEALER.seal_latest(key, given_events)
    all_of_them = [
        {what.path: SEALER.seal(key, origin, what) for what in values} for origin, values in given_events
    ]
    came = [origin for origin, _ in given_events]
    assert joined(present, list(zip(came, latest, strict=True))) == joined(
        present, list(zip(came, all_of_them, strict=True))
    )


def test_where_another_policy_than_latest_decides_all_are_sealed() -> None:
    sealer = RegisterSealer(PolicyTree(snapshot(declared=[attribute("a", policy="first")])), INDEX)
    came = [Origin(Stamp(0, ordinal, "shop", "e"), SpecRef("s", 1)) for ordinal in (1, 2)]
    values = [ValueToSeal("a", 1, False), ValueToSeal("b", 1, False)]
    found = sealer.seal_latest(SealingKey(KEY, NAME), [(origin, values) for origin in came])
    assert [sorted(each) for each in found] == [["a"], ["a", "b"]]


BOUND = 3
TAGS = RegisterSealer(PolicyTree(snapshot(declared=[attribute("tags", "string", policy="union")])), INDEX)
arrays = st.lists(st.sampled_from(["a", "A", " a", "b", "B", "c", "d", 1, "1", [1], ["x"]]), max_size=12)


def kept(written: list[tuple[Origin, list[Register]]], halves: int) -> bytes:
    """What a set of at most BOUND keeps of these, joined in two parts, each cut to its bound before."""
    parts = FragmentState(), FragmentState()
    for part, some in zip(parts, (written[:halves], written[halves:]), strict=True):
        cell = part.cell("tags", ReconciliationPolicy.UNION)
        for _, entries in some:
            cell.keep(entries, ())
        part.normalise()
    parts[0].join(parts[1])
    parts[0].normalise()
    return parts[0].encode()


@given(st.lists(st.tuples(origins, arrays), min_size=1, max_size=4), st.booleans(), st.integers(0, 4))
def test_of_a_large_array_only_what_may_stay_is_given(
    written: list[tuple[Origin, list[object]]], is_searchable: bool, halves: int
) -> None:
    """Byte for byte what giving all elements keeps."""
    key = SealingKey(KEY, NAME)
    what = ValueToSeal("tags", [], is_searchable)
    all_of_them = [
        (origin, [TAGS.seal(key, origin, what._replace(value=each)) for each in elements])
        for origin, elements in written
    ]
    some = [(origin, TAGS.seal_elements(key, origin, what, elements, BOUND)) for origin, elements in written]
    for (_, few), (_, elements) in zip(some, written, strict=True):
        assert len(few) <= (BOUND if len(elements) > BOUND else len(elements))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(POLICIES[ReconciliationPolicy.UNION], "bound", BOUND)
        assert kept(some, halves) == kept(all_of_them, halves)
