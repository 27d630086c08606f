"""Declared attributes are reported once a day, so that the catalogue knows when each was seen last."""

from __future__ import annotations

from typing import Any

import pytest

from idgraph.model.fragments import Origin
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.model.stamps import SpecRef, Stamp
from tests.retail import attribute, snapshot
from transforms.schema import diff, policy_tree
from transforms.schema.diff import AttributeTree
from transforms.schema.policy_tree import PolicyTree

DAY = 86_400

ORIGIN = Origin(Stamp(0, 1, "crm", "e1"), SpecRef("crm", 1))


def reported(tree: AttributeTree, **output: Any) -> list[tuple[str, str]]:
    return [(each.node.path, each.data_type) for each in tree.leaves(output, ORIGIN).unexpected]


@pytest.fixture
def tree() -> AttributeTree:
    return AttributeTree(snapshot(declared=[attribute("a", "number"), attribute("b.c", "string")]))


def test_a_declared_attribute_is_reported_by_the_first_event_of_each_day(tree: AttributeTree) -> None:
    assert reported(tree, a=1) == []
    tree.look_again(1 * DAY)
    assert reported(tree, a=1) == [("a", "integer")]
    tree.report_again()  # the next task
    tree.look_again(1 * DAY)
    assert reported(tree, a=2.5, b={"c": "x"}) == [("b.c", "string")]
    tree.report_again()
    assert reported(tree, a=1, b={"c": "y"}) == []
    tree.look_again(2 * DAY)
    assert reported(tree, b={"c": "x"}) == [("b.c", "string")]
    assert reported(tree, a=1, b={"c": "x"}) == [("a", "integer")]


def test_an_event_that_is_refused_is_no_sight(tree: AttributeTree) -> None:
    tree.look_again(1 * DAY)
    tree.take_back(tree.leaves({"a": 1}, ORIGIN))
    assert reported(tree, a=1) == [("a", "integer")]
    assert reported(tree, a=1) == []


def test_other_types_are_reported_as_before(tree: AttributeTree) -> None:
    tree.look_again(1 * DAY)
    assert reported(tree, a="x") == [("a", "string")]
    assert reported(tree, a=1) == []
    tree.report_again()
    assert reported(tree, a="x") == [("a", "string")], "as long as nobody recorded the conflict"


def test_a_sight_that_was_taken_back_waits_for_the_next_task(tree: AttributeTree) -> None:
    tree.look_again(1 * DAY)
    tree.take_back(tree.leaves({"a": 1}, ORIGIN))
    tree.report_again()
    assert reported(tree, a=1) == [("a", "integer")]


def test_a_sight_is_reported_again_where_its_report_was_lost(tree: AttributeTree) -> None:
    tree.look_again(1 * DAY)
    assert reported(tree, a=1, b={"c": "x"}) == [("a", "integer"), ("b.c", "string")]
    tree.report_again()  # another task, before the one that failed is given again
    tree.report_again(is_lost=True)
    assert reported(tree, a=1) == [("a", "integer")]
    assert reported(tree, a=1) == []


def test_the_default_level_is_the_highest_where_no_declared_one_is_above() -> None:
    declared = attribute("a", authorization_level=30)
    tree = PolicyTree(
        MetadataSnapshot(
            version=1, attributes=(declared,), defaults=DiscoveryDefaults(authorization_level=80)
        )
    )
    assert (tree.highest_level, tree.level("b")) == (80, 80)


def test_a_full_cache_of_unknown_paths_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_tree, "MAX_CACHED_UNKNOWN", 3)
    monkeypatch.setattr(diff, "MAX_CACHED_UNKNOWN", 3)
    tree = AttributeTree(MetadataSnapshot(version=1, attributes=(attribute("a"),)))
    tree.look_again(0)
    reported(tree, **{f"k{number}": 1 for number in range(5)})
    assert reported(tree, k0=1, k4=1) == [("k4", "integer")]
    tree.look_again(60)
    assert ("k4", "integer") in reported(tree, k0=1, k4=1)
    assert reported(tree, k4=1) == []
