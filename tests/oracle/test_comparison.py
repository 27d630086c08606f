"""The differential test can fail: what differs is seen, reported and made small."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.comparison import difference
from tests.oracle.shrinking import shrink

RENAME = [{"operation": "shift", "spec": {"a": "b", "*": "&"}}]


def task(spec: Any, payload: Any) -> dict[str, Any]:
    return {"spec": spec, "input": payload, "context": None}


@pytest.mark.parametrize(
    "theirs",
    [
        {"output": {"b": 1.0}},
        {"output": {"b": True}},
        {"output": {"c": 1}},
        {"output": None},
        {"error": "transform"},
        {"error": "spec"},
    ],
)
def test_another_answer_is_a_difference(theirs: dict[str, Any]) -> None:
    assert difference(task(RENAME, {"a": 1}), {"output": {"b": 1}}) is None
    assert difference(task(RENAME, {"a": 1}), theirs) is not None


def test_another_order_is_a_difference_where_java_has_one() -> None:
    payload = {"a": 1, "c": 2}
    assert difference(task(RENAME, payload), {"output": {"b": 1, "c": 2}}) is None
    assert "order" in (difference(task(RENAME, payload), {"output": {"c": 2, "b": 1}}) or "")
    default = [{"operation": "default", "spec": {"b": 1, "c": 2}}]
    assert difference(task(default, {}), {"output": {"c": 2, "b": 1}}) is None


def test_what_differs_on_purpose_is_none() -> None:
    assert difference(task([{"operation": "shift", "spec": {"a": "&9"}}], {}), {"error": "transform"}) is None
    assert difference(task(RENAME, {"a": 1}), {"output": {"b": float("nan")}}) is None


def test_a_failing_task_is_made_small() -> None:
    spec = [*RENAME, {"operation": "sort", "spec": {}}, {"operation": "remove", "spec": {"x": {"y": ""}}}]
    large = task(spec, {"a": {"deep": [1, {"guilty": "guilty text"}]}, "c": [1, 2, 3], "x": {"y": 1}})
    small = shrink(large, lambda each: "guilty" in str(each["input"]) and "remove" in str(each["spec"]))
    assert small["spec"] == [{"operation": "remove", "spec": {}}] or len(str(small["spec"])) < 45
    assert len(str(small["input"])) <= len("{'guilty': ''}")
    assert large["spec"] == spec
