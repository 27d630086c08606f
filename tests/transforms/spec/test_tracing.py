"""A spec run operation by operation gives what the compiled spec gives."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest

from idgraph.model.errors import SpecError, TransformError
from tests.lanes import examples
from tests.oracle.generation import CONTEXT, chain, document
from tests.transforms.jolt_cases import cases, exact
from transforms import compile_spec
from transforms.spec.compiler import compile_trace, find_problems


def last(spec: Any, payload: Any, context: Any) -> Any:
    *_, step = compile_trace(spec)(payload, context)
    return step.value


def answer(run: Any, *arguments: Any) -> Any:
    try:
        return exact(run(*arguments))
    except TransformError as error:
        return error.pointer, error.message


@pytest.mark.property
def test_the_last_step_is_the_result() -> None:
    random = Random(4)
    compared = 0
    tasks = [(chain(random), document(random), CONTEXT) for _ in range(examples(1500, 500))]
    for spec, payload, context in [*tasks, *((case.spec, case.input, case.context) for case in cases())]:
        try:
            transform = compile_spec(spec)
        except SpecError:
            continue
        before = copy.deepcopy(payload)
        assert answer(last, spec, payload, context) == answer(transform, payload, context), (spec, payload)
        assert exact(payload) == exact(before)
        compared += len(spec) > 1
    assert compared > len(tasks) // 8


def test_steps_share_nothing() -> None:
    spec = [
        {"operation": "shift", "spec": {"a": "b"}},
        {"operation": "modify-overwrite-beta", "spec": {"b": {"n": "=toLong(1)"}}},
        {"operation": "default", "spec": {"b": {"m": 2}}},
    ]
    steps = list(compile_trace(spec)({"a": {"k": 0}}, None))
    assert [(step.pointer, step.operation) for step in steps] == [
        ("/0", "shift"),
        ("/1", "modify-overwrite-beta"),
        ("/2", "default"),
    ]
    assert [step.value for step in steps] == [
        {"b": {"k": 0}},
        {"b": {"k": 0, "n": 1}},
        {"b": {"k": 0, "n": 1, "m": 2}},
    ]
    assert type(steps[1].value["b"]["n"]) is int


def test_a_failing_operation_is_named_after_the_steps_before_it() -> None:
    spec = [{"operation": "sort"}, {"operation": "jmespath", "spec": {"x": "abs(a)"}}]
    steps = compile_trace(spec)({"a": "text"}, None)
    assert next(steps).value == {"a": "text"}
    with pytest.raises(TransformError) as caught:
        next(steps)
    assert caught.value.pointer == "/1"


def test_every_wrong_operation_is_found() -> None:
    spec = [
        {"operation": "shfit", "spec": {}},
        {"operation": "sort"},
        {"operation": "remove", "spec": 5},
    ]
    assert [problem.pointer for problem in find_problems(spec)] == ["/0/operation", "/2/spec"]
    assert [problem.pointer for problem in find_problems("x")] == [""]
    assert find_problems(spec[1]) == []
