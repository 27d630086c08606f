"""The Jolt operations against what the Java library answered."""

from __future__ import annotations

import copy

import pytest

from idgraph.model.errors import SpecError, TransformError
from tests.transforms.jolt_cases import Case, cases, exact
from transforms import compile_spec

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_answers_as_java_did(case: Case) -> None:
    payload, context = copy.deepcopy(case.input), copy.deepcopy(case.context)
    if "error" in case.answer:
        with pytest.raises(SpecError if case.answer["error"] == "spec" else TransformError):
            compile_spec(case.spec)(payload, context)
        return
    transform = compile_spec(case.spec)
    assert exact(transform(payload, context)) == exact(case.answer["output"])
    assert exact(transform(payload, context)) == exact(case.answer["output"])
    assert exact(payload) == exact(case.input)
    assert exact(context) == exact(case.context)
