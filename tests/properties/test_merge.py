"""Law 1 for the merge: whatever the order, the duplication and the batching, one state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp
from merge.fragments import FragmentState
from merge.identity import components
from merge.policies.policy import later
from merge.resolution import tree
from tests.policies import fold

# Few names, so that paths, stamps and sources collide often.
PATHS = ("a", "a.b", "a.b.c", "a.bc", "d", "a\\.b")
stamps = st.builds(
    Stamp, st.integers(0, 1), st.integers(-1, 3), st.sampled_from(["s", "t"]), st.sampled_from(["1", "2"])
)
specs = st.builds(SpecRef, st.sampled_from(["m", "n"]), st.integers(1, 2))
origins = st.builds(Origin, stamps, specs)
values = st.sampled_from([0, 1, True, 1.0, "", "x", "1", [1, {"k": None}], 2**70])


@st.composite
def changes(draw: st.DrawFn) -> FragmentChange:
    origin = draw(origins)
    mutations = {}
    for path in draw(st.lists(st.sampled_from(PATHS), unique=True, max_size=4)):
        kind = draw(st.sampled_from(Kind))
        value: Any = None if kind is Kind.DELETED else "c2VhbGVk" if kind is Kind.SEALED else draw(values)
        mutations[path] = Register(origin, kind, value)
    names = draw(st.lists(st.sampled_from([Identifier("u", "1"), Identifier("e", "x")]), max_size=2))
    scope = draw(st.sampled_from([None, None, "", "a", "a.b"]))
    return FragmentChange("u:1", origin, mutations, (Identifier("u", "1"), *names), scope)


def shown(state: FragmentState) -> dict[str, Any]:
    return tree((path, (register.kind, register.value)) for path, register in state.visible())


@given(st.lists(changes(), max_size=8), st.data())
def test_order_duplication_and_batching_do_not_show(
    events: list[FragmentChange], data: st.DataObject
) -> None:
    once = fold([events])
    again = data.draw(
        st.permutations(events + data.draw(st.lists(st.sampled_from(events)) if events else st.just([])))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(again)), max_size=4)))
    batches = [again[start:end] for start, end in zip([0, *cuts], [*cuts, len(again)], strict=True)]
    other = fold(batches)
    assert other.encode() == once.encode()
    assert shown(other) == shown(once)


@given(st.lists(changes(), max_size=5), st.lists(changes(), max_size=5), st.lists(changes(), max_size=5))
def test_join_is_a_semilattice(
    one: list[FragmentChange], two: list[FragmentChange], three: list[FragmentChange]
) -> None:
    def joined(*lists: list[FragmentChange]) -> bytes:
        state = FragmentState()
        for events in lists:
            state.join(fold([events]))
            state.normalise()
        return state.encode()

    assert joined(one, two) == joined(two, one)
    assert joined(one, one) == joined(one)
    left = fold([one, two])
    left.join(fold([three]))
    left.normalise()
    right = fold([two, three])
    whole = fold([one])
    whole.join(right)
    whole.normalise()
    assert left.encode() == whole.encode()


@given(st.lists(st.lists(changes(), min_size=1, max_size=3), min_size=2, max_size=30))
def test_many_fragments_of_a_person_are_joined_part_by_part(fragments: list[list[FragmentChange]]) -> None:
    states = [FragmentState.decode(fold([events]).encode()) for events in fragments]
    by_one = FragmentState()
    for each in states:
        part = FragmentState.decode(each.encode())
        part.markers.clear()
        by_one.join(part)
    by_one.normalise()
    for at_once in (2, 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(components, "_JOINED_AT_ONCE", at_once)
            assert components.joined(states).encode() == by_one.encode()


@given(st.lists(changes(), max_size=6))
def test_join_says_whether_it_changed_anything(events: list[FragmentChange]) -> None:
    state = fold([events])
    before = state.encode()
    for event in events:
        part = FragmentState()
        part.apply(event)
        state.join(part)
        state.normalise()
    assert state.encode() == before


@given(st.lists(changes(), max_size=8))
def test_what_shows_is_a_tree_and_holds_the_latest_value(events: list[FragmentChange]) -> None:
    state = fold([events])
    shown(state)  # raises if a visible path were a prefix of another
    if events and all(event.scope is None for event in events):
        writers = [event for event in events if event.mutations]
        newest = max((event.origin for event in writers), default=None)
        # "Never drops the winner": something that carries the newest stamp is still there.
        kept = {register.origin for register in state.registers.values()}
        assert newest is None or newest in kept


@given(
    st.builds(Register, origins, st.sampled_from(Kind), values),
    st.builds(Register, origins, st.sampled_from(Kind), values),
)
def test_later_is_commutative_and_picks_one(a: Register, b: Register) -> None:
    assert _single(later(a, b)).encode() == _single(later(b, a)).encode()
    assert later(a, a) is a


def _single(register: Register) -> FragmentState:
    state = FragmentState()
    state.registers["a"] = register
    return state


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), ([1], [True]), (0.0, -0.0)])
def test_values_that_python_calls_equal_have_one_winner(one: Any, other: Any) -> None:
    """Found by review: `==` let the first of them stay."""
    origin = Origin(Stamp(0, 1, "s", "e"), SpecRef("m", 1))
    parts = []
    for value in (one, other):
        parts.append(FragmentState())
        parts[-1].registers["a"] = Register(origin, Kind.PLAIN, value)
    forward, backward = FragmentState(), FragmentState()
    for part in parts:
        forward.join(part)
    for part in reversed(parts):
        backward.join(part)
    assert forward.encode() == backward.encode()
