"""A mapped output's leaves, by the native loops and by Python: the same registers, reports and errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import native
from model.attributes import AttributeMetadata, AttributeStatus, DataType, EncryptionLevel
from model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from tests.properties import odd_values
from tests.properties.twins import ORIGIN, both, outcome
from transforms.detection import detection
from transforms.schema import AttributeTree, Leaves

pytestmark = pytest.mark.skipif(native.built is None, reason=f"the native loops are {native.state}")

STATUSES = (AttributeStatus.ACTIVE, AttributeStatus.DISCOVERED, AttributeStatus.RETIRED)
more = settings(max_examples=300, deadline=None)


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


EXPECTED = {str: "x", int: 1, float: 1.5, bool: True, list: [1], Decimal: Decimal("0.12345678901234567890")}


def leaf(value: Any, before: Any, level: EncryptionLevel = EncryptionLevel.NONE) -> Callable[[], Any]:
    """What becomes of a value at an attribute that nobody declared, after another value."""
    snapshot = MetadataSnapshot(version=1, defaults=DiscoveryDefaults(encryption=level))

    def work() -> Any:
        detection.KNOWN_ANSWERS[1].clear()
        tree = AttributeTree(snapshot)
        tree.leaves({"a": {"b": before}}, ORIGIN)
        return outcome(lambda: told(tree.leaves({"a": {"b": value, "_event": 1}, "_event": 1}, ORIGIN)))

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
