"""The paths that a spec can produce: none of an event may be missed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model import paths
from idgraph.model.errors import SpecError, TransformError
from tests.lanes import examples
from tests.oracle.generation import CONTEXT, chain, document
from transforms import compile_spec
from transforms.spec.output_tree import can_produce, output_tree

SHIFT = {"operation": "shift", "spec": {"a": "x.y", "b": {"c": ["z", "x.w.v"]}}}


@pytest.mark.parametrize(
    ("operations", "can", "cannot"),
    [
        (SHIFT, ["x", "x.y", "x.y.below", "x.w.v"], ["y", "x.v", "z1", "x.w.u"]),
        ({"operation": "sort"}, ["anything"], []),
        ({"operation": "shift", "spec": {"*": "&"}}, ["anything"], []),
        (
            {"operation": "jmespath", "spec": {"a.b": "c", "d": {"e": "f"}}},
            ["a.b", "d.e.f"],
            ["a.c", "d.f", "c"],
        ),
        (
            [SHIFT, {"operation": "default", "spec": {"x": {"new": 1}, "n|m": 2}}],
            ["x.new", "m", "z"],
            ["new"],
        ),
        ([SHIFT, {"operation": "modify-define-beta", "spec": {"+q?": "=toUpper"}}], ["q", "z"], ["q1"]),
        (
            [SHIFT, {"operation": "modify-define-beta", "spec": {"q": {"r-*": {"s": 1}, "r-1": {"t": 1}}}}],
            ["q.r-1.s", "q.r-1.t", "x.y"],
            ["q.r-2.s", "q.r-1.u"],
        ),
        ({"operation": "shift", "spec": {"a": {"b": "x.&1", "c": "y[0].z"}}}, ["x.a", "y.z"], ["x.b", "z"]),
        (
            [SHIFT, {"operation": "default", "spec": {"_id": 1, "x": {"*": {"k": 1}}}}],
            ["_id", "x.w.k"],
            ["id"],
        ),
        ([SHIFT, {"operation": "remove", "spec": {"z": ""}}], ["x.y"], ["w"]),
    ],
)
def test_paths(operations: Any, can: list[str], cannot: list[str]) -> None:
    tree = output_tree(operations)
    assert [path for path in can + cannot if can_produce(tree, path)] == can


def _paths(value: Any, above: tuple[str, ...] = ()) -> Any:
    if isinstance(value, dict):
        for key, below in value.items():
            yield (*above, key)
            yield from _paths(below, (*above, key))


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(min_value=0))
def test_what_comes_out_could_come_out(seed: int) -> None:
    random = Random(seed)
    spec = chain(random)
    try:
        output = compile_spec(spec)(document(random), CONTEXT)
    except (SpecError, TransformError):
        return
    tree = output_tree(spec)
    assert [keys for keys in _paths(output) if not can_produce(tree, paths.join(keys))] == []
