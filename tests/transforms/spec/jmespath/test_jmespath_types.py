"""JMESPath's own types, where Python's are others: a boolean is no number however deep, and a text is a number as in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.errors import TransformError
from transforms import compile_spec
from transforms.spec.jmespath.compilation import compile_expression

CASES: dict[str, Any] = json.loads(Path(__file__).with_name("jmespath_types.json").read_text())
GIVEN = CASES["given"]


@pytest.mark.parametrize(("text", "wanted"), CASES["cases"], ids=lambda each: str(each)[:40])
def test_a_comparison_or_number(text: str, wanted: Any) -> None:
    found = compile_expression(text).evaluate(GIVEN)
    assert (json.dumps(found), type(found)) == (json.dumps(wanted), type(wanted))
    mapped = compile_spec({"operation": "jmespath", "spec": {"out": text}})(json.loads(json.dumps(GIVEN)))
    assert json.dumps((mapped or {}).get("out")) == json.dumps(wanted)


@pytest.mark.parametrize("text", CASES["refused"])
def test_a_boolean_is_no_number_of_a_function(text: str) -> None:
    with pytest.raises(TransformError):
        compile_expression(text).evaluate(GIVEN)
