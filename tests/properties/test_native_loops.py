"""The native loops and their twins in Python give the same objects, bytes and errors, whatever they are given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge import codec
from merge.documents import document
from merge.fragments import FragmentState
from model import canonical, native
from model.attributes import AttributeMetadata, AttributeStatus, DataType, EncryptionLevel
from model.fragments import Kind, Origin, Register
from model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from model.stamps import SpecRef, Stamp
from sinks.sqlite_index_tokens import PathTokens, Tokenizer
from tests.properties import odd_values
from transforms.detection import detection
from transforms.schema import AttributeTree, Leaves

pytestmark = pytest.mark.skipif(native.built is None, reason=f"the native loops are {native.state}")

ORIGIN = Origin(Stamp(0, 1, "shop", "e"), SpecRef("spec", 1))
STATUSES = (AttributeStatus.ACTIVE, AttributeStatus.DISCOVERED, AttributeStatus.RETIRED)
more = settings(max_examples=300, deadline=None)


def outcome(work: Callable[[], Any]) -> str:
    """What came of it, in words that tell 1, 1.0 and True apart."""
    try:
        return repr(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def both(work: Callable[[], Any]) -> tuple[str, str]:
    """What comes of some work with the loops and without."""
    outcomes = []
    for wanted in (True, False):
        native.use(wanted)
        try:
            outcomes.append(outcome(work))
        finally:
            native.use(True)
    return outcomes[0], outcomes[1]


attributes = st.lists(
    st.builds(
        lambda path, kind, level, status: AttributeMetadata(
            path=path,
            data_type=kind,
            encryption=level,
            status=status,
            version=1,
            created=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        st.sampled_from(["a", "a.a", "a.b", "b", "b.c", "email", "c", "d.e", "d"]),
        st.sampled_from(DataType),
        st.sampled_from([EncryptionLevel.NONE, EncryptionLevel.NONE, *EncryptionLevel]),
        st.sampled_from(STATUSES),
    ),
    max_size=8,
    unique_by=lambda attribute: attribute.path,
)


def told(leaves: Leaves) -> tuple[Any, ...]:
    """Nodes are told by their paths: each tree has its own."""
    unexpected = [
        (each.node.path, *each[1:3], sorted(map(repr, each.kinds)), each.known) for each in leaves[2]
    ]
    return leaves.plain, leaves.to_seal, unexpected


@more
@given(
    attributes,
    st.sampled_from(DetectionMode),
    st.lists(odd_values.trees | odd_values.fine_trees, max_size=4),
    st.booleans(),
)
def test_leaves(
    declared: list[AttributeMetadata], mode: DetectionMode, outputs: list[Any], forget: bool
) -> None:
    defaults = DiscoveryDefaults(detection=mode)
    snapshot = MetadataSnapshot(version=1, attributes=tuple(declared), defaults=defaults)

    def work() -> list[str]:
        tree = AttributeTree(snapshot)
        if forget:
            detection.KNOWN_ANSWERS[1].clear()
        # Twice, so that what an attribute showed is known.
        return [outcome(lambda o=output: told(tree.leaves(o, ORIGIN))) for output in outputs * 2]  # type: ignore[misc]

    one, other = both(work)
    assert one == other


@given(odd_values.texts | st.text("abcXYZ019 _./:-\n", max_size=30))
def test_what_the_loops_take_for_harmless_is(text: str) -> None:
    snapshot = MetadataSnapshot(version=1)

    def work() -> Any:
        detection.KNOWN_ANSWERS[1].clear()
        tree = AttributeTree(snapshot)
        tree.leaves({"a": "x"}, ORIGIN)
        return outcome(lambda: told(tree.leaves({"a": text}, ORIGIN)))

    one, other = both(work)
    assert one == other


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
    state.registers = draw(st.dictionaries(places, registers, max_size=8))
    state.identifiers = draw(st.dictionaries(texts, one, max_size=3))
    state.markers = draw(
        st.dictionaries(st.tuples(texts, places), one.map(lambda each: each.stamp), max_size=2)
    )
    return state


def parts(state: FragmentState) -> tuple[Any, ...]:
    return state.registers, state.markers, state.identifiers


@more
@given(states())
def test_states_to_bytes_and_back(state: FragmentState) -> None:
    def work() -> tuple[bytes, Any]:
        data = codec.encode(state)
        return data, parts(codec.decode(data))

    one, other = both(work)
    assert one == other


def test_a_state_of_many_events() -> None:
    state = FragmentState()
    for event in range(200):
        origin = Origin(Stamp(0, 500 - event, "s", str(event)), SpecRef("m", 1))
        state.registers[f"p{event % 150}"] = Register(origin, Kind.PLAIN, event)
    one, other = both(lambda: (codec.encode(state), parts(codec.decode(codec.encode(state)))))
    assert one == other


@pytest.mark.parametrize(
    "register",
    [[0, 1, 1], [-1, 1, 1], [1, 1, 1], [-2, 1, 1], [0, 3, 1], [0, -1, 1], [2**70, 1, 1], [0, 2**70, 1]],
)
def test_places_out_of_range(register: list[int]) -> None:
    body = canonical.encode([[[0, 0, "s", "e", "m", 1]], {"a": register}, [], {}])
    data = codec.FORMAT + codec._checksum(body) + body
    one, other = both(lambda: parts(codec.decode(data)))
    assert one == other


@more
@given(states(), st.sets(paths))
def test_documents(state: FragmentState, indexable: set[str]) -> None:
    one, other = both(lambda: document("f", 1, state, indexable.__contains__))
    assert one == other


KNOWN = ["a", "a.b", "b", "ü", "日"]
documents = st.dictionaries(st.sampled_from(KNOWN), odd_values.texts | odd_values.integers | st.floats()) | (
    st.dictionaries(paths, odd_values.leaves, max_size=3)
)


@more
@given(st.lists(documents, max_size=3))
def test_tokens(documents: list[dict[str, Any]]) -> None:
    known = {path: PathTokens.of(place) for place, path in enumerate(KNOWN)}

    def work() -> list[str]:
        tokenizer = Tokenizer(known)
        return [outcome(lambda f=fields: tokenizer.tokens(f)) for fields in documents * 2]  # type: ignore[misc]

    one, other = both(work)
    assert one == other


def test_objects_are_of_the_same_types() -> None:
    state = codec.decode(codec.encode(_state()))
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
