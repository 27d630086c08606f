"""Generated specs and inputs: the Java library and ours side by side."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from model.errors import SpecError, TransformError
from tests.oracle import jolt
from tests.oracle.generation import SPECS, tasks
from tests.transforms.jolt_cases import cases, exact
from transforms import compile_spec

REFUSED_EARLY = ("levels above this place", "there is no group", "nested deeper than")
"""Where we are stricter on purpose: Java fails at run time, or when it writes an endless output."""
FIXED_SIZE_LIST = "UnsupportedOperationException"
"""In Java `split`, `toList` and their like give lists that cannot grow; ours can."""


@pytest.fixture(scope="module")
def oracle() -> Any:
    try:
        jolt.classpath()
    except jolt.NoOracleError as reason:
        pytest.skip(f"no Java Jolt to compare with: {reason}")
    return jolt


def ours(task: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"output": compile_spec(task["spec"])(task["input"], task["context"])}
    except SpecError as error:
        return {"error": "spec", "detail": str(error)}
    except TransformError as error:
        return {"error": "transform", "detail": str(error)}


@pytest.mark.parametrize("operation", SPECS)
def test_generated_specs(oracle: Any, operation: str) -> None:
    asked = tasks(seed=len(operation), count=600, first=operation)
    before = copy.deepcopy(asked)
    for task, original, theirs in zip(asked, before, oracle.answers(asked), strict=True):
        found = ours(task)
        assert exact(task) == exact(original), task
        if any(reason in found.get("detail", "") for reason in REFUSED_EARLY):
            continue
        if FIXED_SIZE_LIST in theirs.get("detail", ""):
            continue
        assert found.get("error") == theirs.get("error"), (task, theirs, found)
        assert exact(found.get("output")) == exact(theirs.get("output")), (task, theirs, found)


def test_recorded_answers_are_those_of_the_library(oracle: Any) -> None:
    recorded = cases()
    answers = oracle.answers(
        [{"spec": case.spec, "input": case.input, "context": case.context} for case in recorded]
    )
    for case, answer in zip(recorded, answers, strict=True):
        answer.pop("detail", None)
        assert exact(answer) == exact(case.answer), case.label
