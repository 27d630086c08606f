"""Sealing only what nothing later replaces gives what sealing everything gives (law 1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from merge.fragments import FragmentState
from model.fragments import FragmentChange, Kind, Origin, Register
from model.stamps import SpecRef, Stamp
from tests.properties.test_sealing import INDEX, KEY
from tests.retail import attribute, snapshot
from transforms.leaves import ValueToSeal
from transforms.policy_tree import PolicyTree
from transforms.register_sealing import RegisterSealer
from transforms.sealing_key import SealingKey

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
    state.registers = dict(start)
    for origin, mutations in found:
        state.apply(FragmentChange(NAME, origin, mutations, ()))
    return state.registers


@given(events, st.dictionaries(st.sampled_from("abc"), origins))
def test_the_join_is_the_same(
    given_events: list[tuple[Origin, list[ValueToSeal]]], before: dict[str, Origin]
) -> None:
    key = SealingKey(KEY, NAME)
    present = {path: Register(origin, Kind.PLAIN, "before") for path, origin in before.items()}
    latest = SEALER.seal_latest(key, given_events, present)
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
    found = sealer.seal_latest(SealingKey(KEY, NAME), [(origin, values) for origin in came], {})
    assert [sorted(each) for each in found] == [["a"], ["a", "b"]]
