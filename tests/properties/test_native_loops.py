"""The native loops and their reference implementations in Python give the same objects, bytes and errors, whatever they are given."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph import native
from idgraph.model import canonical
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.index import IndexRules
from idgraph.model.stamps import SpecRef, Stamp
from merge import codec
from merge.documents import document
from merge.fragments import FragmentState
from tests.lanes import examples
from tests.properties import odd_values
from tests.properties.references import ORIGIN, both

pytestmark = pytest.mark.skipif(native.built is None, reason=f"the native loops are {native.state}")

more = settings(max_examples=examples(300), deadline=None)


def origins(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Origin]:
    return st.builds(
        Origin,
        st.builds(Stamp, st.integers(0, 2), st.integers(), st.sampled_from("st"), texts),
        st.builds(SpecRef, texts, st.integers(1, 2)),
    )


paths = st.sampled_from(["a", "a.b", "a.b.c", "a-b", "b", "ü", '"', "\x7f", "日", "\ud800", "z" * 40])


@st.composite
def states(draw: st.DrawFn) -> FragmentState:
    is_fine = draw(st.booleans())
    texts, leaves, places = (
        (odd_values.fine_texts, odd_values.fine_leaves, st.sampled_from(["a", "a.b", "a-b", "b", "z.z"]))
        if is_fine
        else (odd_values.texts, odd_values.leaves, paths)
    )
    said = draw(st.lists(origins(texts), min_size=1, max_size=6))
    # Equal ones that are not the same object, too.
    said += [Origin(*each) for each in said]
    one = st.sampled_from(said)
    state = FragmentState()
    registers = st.one_of(
        st.builds(Register, one, st.just(Kind.PLAIN), leaves),
        st.builds(Register, one, st.just(Kind.DELETED), st.none()),
        st.builds(Register, one, st.just(Kind.SEALED), st.sampled_from(["c", "c.t", "c.", ".", "c.t.u"])),
    )
    state.registers.update(draw(st.dictionaries(places, registers, max_size=8)))
    state.identifiers.update(draw(st.dictionaries(texts, one, max_size=3)))
    state.markers.update(
        draw(st.dictionaries(st.tuples(texts, places), one.map(lambda each: each.stamp), max_size=2))
    )
    return state


def parts(state: FragmentState) -> tuple[Any, ...]:
    return state.registers, state.markers, state.identifiers


@more
@given(states())
def test_states_to_bytes_and_back(state: FragmentState) -> None:
    def work() -> tuple[bytes, Any]:
        data = state.encode()
        return data, parts(FragmentState.decode(data))

    one, other = both(work)
    assert one == other


def test_a_state_of_many_events() -> None:
    state = FragmentState()
    for event in range(200):
        origin = Origin(Stamp(0, 500 - event, "s", str(event)), SpecRef("m", 1))
        state.registers[f"p{event % 150}"] = Register(origin, Kind.PLAIN, event)
    one, other = both(lambda: (state.encode(), parts(FragmentState.decode(state.encode()))))
    assert one == other


@pytest.mark.parametrize(
    "register",
    [[0, 1, 1], [-1, 1, 1], [1, 1, 1], [-2, 1, 1], [0, 3, 1], [0, -1, 1], [2**70, 1, 1], [0, 2**70, 1]],
)
def test_places_out_of_range(register: list[int]) -> None:
    body = canonical.encode([[[0, 0, "s", "e", "m", 1]], {"a": register}, [], {}])
    data = codec.framed(body)
    one, other = both(lambda: parts(FragmentState.decode(data)))
    assert one == other


@more
@given(states(), st.sets(paths))
def test_documents(state: FragmentState, indexable: set[str]) -> None:
    one, other = both(lambda: document("f", 1, state, IndexRules(indexable.__contains__)))
    assert one == other


def test_objects_are_of_the_same_types() -> None:
    state = FragmentState.decode(_state().encode())
    register = state.registers["a"]
    assert (type(register), type(register[0]), type(register[0][0]), type(register[0][1])) == (
        Register,
        Origin,
        Stamp,
        SpecRef,
    )
    assert hash(register) == hash(Register(ORIGIN, Kind.PLAIN, 1))
    assert register.kind is Kind.PLAIN


def _state() -> FragmentState:
    state = FragmentState()
    state.registers["a"] = Register(ORIGIN, Kind.PLAIN, 1)
    return state
