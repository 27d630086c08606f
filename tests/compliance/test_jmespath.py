"""The official JMESPath compliance suite against the operation `jmespath`.

`jmespath/` holds the suite as jmespath.py 1.1 has it (tests/compliance in its repository, licence beside
it): arrays of `{"given": ..., "cases": [{"expression": ..., "result": ... | "error": ... | "bench": ...}]}`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jmespath
import pytest
from jmespath.exceptions import JMESPathError

from idgraph.model.errors import SpecError, TransformError
from tests.transforms.jolt_cases import exact
from transforms import compile_spec

FOLDER = Path(__file__).with_name("jmespath")
REFUSED = object()


class Case(NamedTuple):
    """`expected` is REFUSED where the suite wants an error, and absent (None) in benchmarks."""

    label: str
    given: Any
    expression: str
    case: dict[str, Any]


def cases() -> Iterator[Case]:
    for file in sorted(FOLDER.glob("*.json")):
        for number, group in enumerate(json.loads(file.read_text(encoding="utf-8"))):
            for index, case in enumerate(group["cases"]):
                yield Case(f"{file.stem}-{number}-{index}", group["given"], case["expression"], case)


CASES = list(cases())


def ours(expression: str, given: Any) -> Any:
    try:
        mapped = compile_spec({"operation": "jmespath", "spec": {"x": expression}})(given)
    except (SpecError, TransformError):
        return REFUSED
    return None if mapped is None else mapped["x"]


def library(expression: str, given: Any) -> Any:
    try:
        return jmespath.search(expression, given)
    except (JMESPathError, ValueError):
        # ValueError: it does not look at the step of a slice, which the suite does not let be 0.
        return REFUSED


def test_the_suite_is_there() -> None:
    assert len(CASES) > 850


@pytest.mark.filterwarnings("ignore:deprecated string literal syntax:PendingDeprecationWarning")
@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_case(case: Case) -> None:
    before = copy.deepcopy(case.given)
    found = ours(case.expression, case.given)
    assert exact(found) == exact(library(case.expression, copy.deepcopy(case.given)))
    assert exact(case.given) == exact(before)
    if "error" in case.case:
        assert found is REFUSED
    elif "result" in case.case:
        assert found == case.case["result"]
