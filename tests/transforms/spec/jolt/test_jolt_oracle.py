"""Generated specs and inputs: the Java library and ours side by side."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from tests.oracle import jolt
from tests.oracle.comparison import difference
from tests.oracle.generation import GENERATORS, task_of
from tests.transforms.jolt_cases import cases, exact

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def oracle() -> None:
    try:
        jolt.classpath()
    except jolt.NoOracleError as reason:
        pytest.skip(f"no Java Jolt to compare with: {reason}")


@cache
def answered(operation: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Generated tasks with the library's answers: asked once for both kinds of loops."""
    asked = [task_of(Random(f"{operation}-{number}"), operation) for number in range(500)]
    return list(zip(asked, jolt.answers(asked), strict=True))


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("operation", GENERATORS)
def test_generated_specs(operation: str) -> None:
    tasks = answered(operation)
    wrong = [(task, difference(task, theirs)) for task, theirs in tasks]
    assert [found for found in wrong if found[1] is not None] == []
    assert sum("output" in theirs for _, theirs in tasks) > 200


@pytest.mark.usefixtures("oracle")
def test_recorded_answers_are_those_of_the_library() -> None:
    recorded = cases()
    answers = jolt.answers(
        [{"spec": case.spec, "input": case.input, "context": case.context} for case in recorded]
    )
    for case, answer in zip(recorded, answers, strict=True):
        answer.pop("detail", None)
        assert exact(answer) == exact(case.answer), case.label
