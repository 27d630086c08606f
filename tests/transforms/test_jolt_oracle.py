"""Generated specs and inputs: the Java library and ours side by side."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracle import jolt
from tests.oracle.comparison import difference
from tests.oracle.generation import GENERATORS, task_of
from tests.transforms.jolt_cases import cases, exact


@pytest.fixture(scope="module")
def oracle() -> Any:
    try:
        jolt.classpath()
    except jolt.NoOracleError as reason:
        pytest.skip(f"no Java Jolt to compare with: {reason}")
    return jolt


@pytest.mark.parametrize("operation", GENERATORS)
def test_generated_specs(oracle: Any, operation: str) -> None:
    asked = [task_of(Random(f"{operation}-{number}"), operation) for number in range(500)]
    answers = oracle.answers(asked)
    wrong = [(task, difference(task, theirs)) for task, theirs in zip(asked, answers, strict=True)]
    assert [found for found in wrong if found[1] is not None] == []
    assert sum("output" in theirs for theirs in answers) > 200


def test_recorded_answers_are_those_of_the_library(oracle: Any) -> None:
    recorded = cases()
    answers = oracle.answers(
        [{"spec": case.spec, "input": case.input, "context": case.context} for case in recorded]
    )
    for case, answer in zip(recorded, answers, strict=True):
        answer.pop("detail", None)
        assert exact(answer) == exact(case.answer), case.label
