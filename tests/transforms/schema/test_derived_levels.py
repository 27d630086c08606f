"""A derived attribute has at least the authorization level of all that it is made of."""

from __future__ import annotations

from typing import Any

import pytest

from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.snapshots import MetadataSnapshot
from tests.retail import attribute
from transforms.schema.policy_tree import PolicyTree

VISIT = ActivityDocument(
    name="visit", fields={"page": "web.page"}, condition="web.country == 'DE'", time="web.at", version=1
)
MODEL = {"digest": "0" * 64, "inputs": ({"path": "b"},)}


def derived(name: str, **content: Any) -> DerivedDocument:
    return DerivedDocument(name=name, path=name, version=1, **content)


@pytest.mark.parametrize(
    ("protected", "level"), [("web.page", 40), ("web.country", 60), ("web.at", 70), ("web.other", 0)]
)
def test_levels_follow_from_sources_whatever_the_names(protected: str, level: int) -> None:
    snapshot = MetadataSnapshot(
        version=1,
        attributes=(attribute(protected, authorization_level=level or 50),),
        activities=(VISIT,),
        # In the order of their names, each reads a later one.
        derived_attributes=(
            derived("a", model=MODEL),
            derived("b", expression="c"),
            derived("c", window={"activity": "visit"}),
        ),
    )
    tree = PolicyTree(snapshot)
    assert [tree.level(name) for name in "abc"] == [level] * 3
