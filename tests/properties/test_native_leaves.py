"""A mapped output's leaves, by native code and by Python: the same registers, reports and errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph import native
from idgraph.model.attributes import (
    AttributeMetadata,
    AttributeStatus,
    DataType,
    EncryptionLevel,
    ReconciliationPolicy,
)
from idgraph.model.errors import EventError
from idgraph.model.fragments import FragmentChange, Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from merge import codec
from merge.fragments import FragmentState
from tests.lanes import examples
from tests.properties import odd_values
from tests.properties.references import ORIGIN, both, outcome
from transforms.schema import detection
from transforms.schema.attribute_nodes import Leaves
from transforms.schema.diff import AttributeTree, _check_number

pytestmark = pytest.mark.skipif(native.built_leaves is None, reason=f"native code is {native.state}")

STATUSES = (AttributeStatus.ACTIVE, AttributeStatus.DISCOVERED, AttributeStatus.RETIRED)
more = settings(max_examples=examples(300), deadline=None)


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


def reported(leaves: Leaves) -> tuple[Any, ...]:
    """Nodes are reported by their paths: each tree has its own."""
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
        tree.look_again(86_400 * (len(outputs) % 2))  # 0 is no other day
        if forget:
            detection.KNOWN_ANSWERS[1].clear()
        # Twice, so that what an attribute showed is known.
        return [outcome(lambda o=output: reported(tree.leaves(o, ORIGIN))) for output in outputs * 2]  # type: ignore[misc]

    one, other = both(work)
    assert one == other


IDENTIFIERS = (Identifier("u", "1"), Identifier("a", 'x"y'))


def leaves_and_state(
    tree: AttributeTree, output: Any, origin: Origin, identifiers: Any
) -> tuple[Leaves, bytes | None]:
    """As native code calls it for an event: then the plain leaves stand in the state."""
    known = tree.native_state()
    if known is None or type(output) is not dict:
        return tree.leaves(output, origin), None
    state, root, skipped, policies, walk, encode, _ = known
    found = Leaves({}, [], [])
    try:
        body = state(root, output, skipped, origin, identifiers, policies, found, *found[:2], walk, encode)
        _check_number(found)
    except EventError:
        tree.take_back(found)
        raise
    return found, body


def as_one_state(tree: AttributeTree, output: Any, identifiers: tuple[Identifier, ...]) -> tuple[Any, ...]:
    """The leaves and the state of an event: the values of the plain leaves are reported by the bytes of the event's state."""
    leaves, body = leaves_and_state(tree, output, ORIGIN, identifiers)
    if body is None:
        state = FragmentState()
        state.apply(FragmentChange("u:1", ORIGIN, leaves.plain, identifiers))
        body = codec.body(state.encode())
    else:
        assert not leaves.plain
    return body, *reported(leaves._replace(plain={}))


identifier_values = odd_values.fine_texts | st.sampled_from(["1", "\ud800", "日", 'q"', "\x7f"])


@more
@given(
    attributes,
    st.sampled_from(DetectionMode),
    st.lists(odd_values.trees | odd_values.fine_trees, max_size=4),
    st.lists(st.builds(Identifier, st.sampled_from("uva"), identifier_values), max_size=3).map(tuple),
    st.booleans(),
)
def test_the_state_of_an_event(
    declared: list[AttributeMetadata],
    mode: DetectionMode,
    outputs: list[Any],
    identifiers: tuple[Identifier, ...],
    has_policy: bool,
) -> None:
    if has_policy:
        declared = [
            each.model_copy(update={"policy": ReconciliationPolicy.FIRST} if each.path == "a" else {})
            for each in declared
        ]
    defaults = DiscoveryDefaults(detection=mode)
    snapshot = MetadataSnapshot(version=1, attributes=tuple(declared), defaults=defaults)

    def work() -> list[str]:
        tree = AttributeTree(snapshot)
        return [outcome(lambda o=output: as_one_state(tree, o, identifiers)) for output in outputs * 2]  # type: ignore[misc]

    one, other = both(work)
    assert one == other


def state_of_event(
    output: Any, identifiers: Any = IDENTIFIERS, **attribute: Any
) -> tuple[Leaves, bytes | None]:
    stated = {
        "path": "p.sealed",
        "data_type": DataType.STRING,
        "encryption": EncryptionLevel.PROTECTED,
        **attribute,
    }
    metadata = AttributeMetadata(**stated, version=1, created=datetime(2026, 1, 1, tzinfo=UTC))
    tree = AttributeTree(MetadataSnapshot(version=1, attributes=(metadata,)))
    tree.leaves(output, ORIGIN)
    return leaves_and_state(tree, output, ORIGIN, identifiers)


def test_an_event_of_the_common_form_makes_no_registers() -> None:
    output = {
        "b": {"c": 1, "a": "x"},
        "a": None,
        "l": [1],
        "f": 1.5,
        "p": {"sealed": "s"},
        "_event": {"id": 1},
    }
    leaves, state = state_of_event(output)
    assert (leaves.plain, [each.value for each in leaves.to_seal]) == ({}, ["s"])
    assert state == (
        b'[[[0,1,"shop","e","spec",1]],{"a":[0,0,null],"b.a":[0,1,"x"],"b.c":[0,1,1],"f":[0,1,1.5],"l":[0,1,[1]]},'
        b'[],{"a:x\\"y":0,"u:1":0},{"shop||a:x\\"y":[0,0]}]'
    )


@pytest.mark.parametrize(
    ("output", "changed"),
    [
        ({"ü": 1}, {}),
        ({"a": 1}, {"identifiers": (Identifier("u", "日"),)}),
        ({"a": 1}, {"identifiers": (Identifier("u", "1"),) * 2}),
        ({"a": 1}, {"identifiers": tuple(Identifier("u", str(n)) for n in range(17))}),
        ({"a": 1}, {"identifiers": ()}),
        ({f"k{n}": n for n in range(1025)}, {}),
        ({"p": {f"k{n}": n for n in range(1025)}}, {"path": "p"}),
        ({"a": 1}, {"path": "a", "policy": ReconciliationPolicy.FIRST, "encryption": EncryptionLevel.NONE}),
        ({"a": "x", "b": 1}, {"path": "a", "policy": ReconciliationPolicy.FIRST}),
    ],
    ids=str,
)
def test_others_do(output: Any, changed: dict[str, Any]) -> None:
    leaves, state = state_of_event(output, **changed)
    assert state is None
    assert len(leaves) == len(output.get("p", output))


EXPECTED = {str: "x", int: 1, float: 1.5, bool: True, list: [1], Decimal: Decimal("0.12345678901234567890")}


def leaf(value: Any, before: Any, level: EncryptionLevel = EncryptionLevel.NONE) -> Callable[[], Any]:
    """What becomes of a value at an attribute that nobody declared, after another value."""
    snapshot = MetadataSnapshot(version=1, defaults=DiscoveryDefaults(encryption=level))

    def work() -> Any:
        detection.KNOWN_ANSWERS[1].clear()
        tree = AttributeTree(snapshot)
        tree.leaves({"a": {"b": before}}, ORIGIN)
        return outcome(lambda: reported(tree.leaves({"a": {"b": value, "_event": 1}, "_event": 1}, ORIGIN)))

    return work


@pytest.mark.parametrize("before", EXPECTED.values(), ids=repr)
def test_each_odd_value_after_each_type(before: Any) -> None:
    for value in (*odd_values.TEXTS, *odd_values.INTEGERS, *odd_values.FLOATS, *EXPECTED.values(), None):
        one, other = both(leaf(value, before))
        assert one == other


@more
@given(
    odd_values.leaves | odd_values.fine_leaves | st.text("abcXYZ019 _./:-\n", max_size=30),
    st.sampled_from(EncryptionLevel),
)
def test_a_leaf_of_a_type_that_is_expected(value: Any, level: EncryptionLevel) -> None:
    one, other = both(leaf(value, EXPECTED.get(type(value)), level))
    assert one == other
