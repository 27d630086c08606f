"""The specs of the mapping benchmark give on real payloads what the Java library gives, in the same order."""

from __future__ import annotations

import json

import pytest

from benchmarks.mapping_cases import MappingCase, cases
from tests.oracle import jolt
from transforms import compile_spec

# The others call functions, or an operation, that Java does not have.
CASES = [
    case for case in cases() if json.loads(case.java_spec) == case.spec and "epochMs" not in str(case.spec)
]


@pytest.mark.parametrize(
    "case", [case for case in CASES if "stripLeadingZeros" not in str(case.spec)], ids=lambda case: case.name
)
def test_same_as_java(case: MappingCase) -> None:
    payloads = [json.loads(line) for line in case.lines[:300]]
    try:
        answers = jolt.answers([{"spec": case.spec, "input": payload} for payload in payloads])
    except jolt.NoOracleError as reason:
        pytest.skip(f"no Java Jolt to compare with: {reason}")
    transform = compile_spec(case.spec)
    for payload, answer in zip(payloads, answers, strict=True):
        assert json.dumps(transform(payload)) == json.dumps(answer["output"])
