from __future__ import annotations

from decimal import Decimal

from idgraph.app.tracing import changes, leaves, masked


def test_changes_leaf_by_leaf() -> None:
    before = {"same": 1, "n": 1, "gone": {"x": [None]}, "list": [1, 2], "was": {"a": 1}, "e": {}}
    after = {"same": 1, "n": 1.0, "list": [1, 3, {}], "was": "text", "e": {"k": True}, "a.b": ""}
    assert [tuple(change) for change in changes(before, after)] == [
        ("changed", "n", 1, 1.0),
        ("changed", "list[1]", 2, 3),
        ("added", "list[2]", None, {}),
        ("removed", "was.a", 1, None),
        ("added", "was", None, "text"),
        ("removed", "e", {}, None),
        ("added", "e.k", None, True),
        ("added", "a\\.b", None, ""),
        ("removed", "gone.x[0]", None, None),
    ]


def test_the_same_has_no_changes() -> None:
    value = {"a": [1, {"b": None}], "c": {}, "d": []}
    assert list(changes(value, {"d": [], **value})) == []
    assert [tuple(change) for change in changes(None, {})] == [
        ("removed", "", None, None),
        ("added", "", None, {}),
    ]


def test_leaves_and_masks() -> None:
    value = {"a": [1, Decimal("1.5"), 2.5, None, True, "text"], "e": {}}
    assert list(leaves(value))[:2] == [("a[0]", 1), ("a[1]", Decimal("1.5"))]
    assert masked(value) == {
        "a": ["<integer>", "<decimal>", "<decimal>", None, "<boolean>", "<text of 4>"],
        "e": {},
    }
