"""The examples in docs/mapping.md do what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from model.specs import SpecDefinition
from transforms import compile_spec
from transforms.expressions.functions import CUSTOM_FUNCTIONS
from transforms.operations import OPERATIONS

TEXT = (Path(__file__).parents[2] / "docs" / "mapping.md").read_text()
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: dict[str, Any]) -> None:
    if "name" in example:
        compile_spec(SpecDefinition.model_validate(example).operations)
    else:
        assert compile_spec(example["operations"])(example["input"]) == example["output"]


@pytest.mark.parametrize("name", [*OPERATIONS, *CUSTOM_FUNCTIONS])
def test_everything_is_documented(name: str) -> None:
    assert f"`{name}" in TEXT
