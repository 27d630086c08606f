"""The examples in docs/mapping.md and docs/from-jolt.md do what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from model.specs import SpecDefinition
from tests.oracle.comparison import ordered
from transforms import compile_spec
from transforms.expressions.functions import CUSTOM_FUNCTIONS
from transforms.jolt.functions import FUNCTIONS
from transforms.limits import DEFAULT_LIMITS
from transforms.operations import OPERATIONS

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "mapping.md").read_text(encoding="utf-8")
FROM_JOLT = (DOCS / "from-jolt.md").read_text(encoding="utf-8")
EXAMPLES = [
    json.loads(block) for text in (TEXT, FROM_JOLT) for block in re.findall(r"```json\n(.*?)```", text, re.S)
]
AT_HAND = {"l": [1, None], "o": {"a": None, "b": {"c": None}}, "d": ["a", "b", "a"], "n": None}
NOTHING = object()


class Row(NamedTuple):
    """One row of a table: the heading above, and its cells without the marks of code."""

    heading: str
    cells: list[str]


def rows() -> Iterator[Row]:
    heading = ""
    for line in TEXT.splitlines():
        if line.startswith("#"):
            heading = line.strip("# `")
        elif line.startswith("|") and not line.startswith("|---"):
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            yield Row(heading, [_plain(cell.replace("\\|", "|")) for cell in cells])


def _plain(cell: str) -> str:
    code = re.fullmatch(r"\s*(`+) ?(.*?) ?\1\s*", cell)
    return code[2] if code else cell.strip()


ROWS = list(rows())
SPECS = [row for row in ROWS if row.heading in OPERATIONS and row.cells[1] != "spec"]
JOLT = [row for row in ROWS if row.heading == "Functions of `modify-*" and row.cells[2] != "example"]
JMESPATH = [row for row in ROWS if row.heading == "The operation `jmespath" and row.cells[0] != "function"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: dict[str, Any]) -> None:
    if "name" in example:
        compile_spec(SpecDefinition.model_validate(example).operations)
    else:
        assert ordered(compile_spec(example["operations"])(example["input"])) == ordered(example["output"])


@pytest.mark.parametrize("row", SPECS, ids=lambda row: f"{row.heading}: {row.cells[0]}")
def test_row_of_an_operation(row: Row) -> None:
    _, spec, payload, output = row.cells
    mapped = compile_spec({"operation": row.heading, "spec": json.loads(spec)})(json.loads(payload))
    assert ordered(mapped) == ordered(json.loads(output))


@pytest.mark.parametrize("row", JOLT, ids=lambda row: row.cells[0])
def test_row_of_a_jolt_function(row: Row) -> None:
    name, _, call, result = row.cells
    assert call.startswith(f"={name}(")
    spec = {"operation": "modify-overwrite-beta", "spec": {"x": call}}
    found = compile_spec(spec)(AT_HAND).get("x", NOTHING)
    assert ordered(found) == ordered(NOTHING if result == "nothing" else json.loads(result))


@pytest.mark.parametrize("row", JMESPATH, ids=lambda row: row.cells[2])
def test_row_of_a_jmespath_function(row: Row) -> None:
    found = compile_spec({"operation": "jmespath", "spec": {"x": row.cells[2]}})({})
    assert ordered(found["x"] if found else None) == ordered(json.loads(row.cells[3]))


@pytest.mark.parametrize("name", [*OPERATIONS, *CUSTOM_FUNCTIONS])
def test_everything_is_documented(name: str) -> None:
    assert f"`{name}" in TEXT


def test_every_function_and_every_operation_has_an_example() -> None:
    assert {row.cells[0] for row in JOLT} == set(FUNCTIONS)
    assert set(CUSTOM_FUNCTIONS) <= {row.cells[0].partition("(")[0] for row in JMESPATH}
    assert {row.heading for row in SPECS} | {"jmespath", "modify-default-beta", "modify-define-beta"} == set(
        OPERATIONS
    )


def test_the_object_at_hand_is_the_documented_one() -> None:
    assert f"`{json.dumps(AT_HAND)}`" in TEXT


@pytest.mark.parametrize(
    "name", ["max_operations", "max_spec_size", "max_spec_depth", "max_steps", "max_nodes"]
)
def test_bounds_are_those_of_the_engine(name: str) -> None:
    assert f"| {getattr(DEFAULT_LIMITS, name):,} |" in TEXT
