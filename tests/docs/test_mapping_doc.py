"""The examples in docs/mapping.md and docs/from-jolt.md do what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.sources import FileSource, ValuePlace
from idgraph.model.specs import SpecDefinition, SpecDocument
from metadata_service.specs.cases import failing_cases
from tests.oracle.comparison import ordered
from tests.retail import CREATED, UNDETECTED, Pipeline, attribute, raw, snapshot
from transforms import compile_spec
from transforms.spec.jmespath.functions import CUSTOM_FUNCTIONS
from transforms.spec.jolt.functions import FUNCTIONS
from transforms.spec.limits import DEFAULT_LIMITS
from transforms.spec.operations import OPERATIONS

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
        definition = SpecDefinition.model_validate(example)
        compile_spec(definition.operations)
        assert failing_cases(definition) == []
    else:
        assert ordered(compile_spec(example["operations"])(example["input"])) == ordered(example["output"])


BILLING: dict[str, Any] = next(each for each in EXAMPLES if each.get("name") == "billing")
BY_ID_ALONE = {"operations": BILLING["operations"][:1]}


@pytest.mark.parametrize(
    ("changed", "place", "balance"),
    [
        ({}, None, 7),
        (BY_ID_ALONE, None, 10),
        # docs/configuration.md: each type a source.
        ({**BY_ID_ALONE, "source": "*"}, ValuePlace(path="type"), 7),
    ],
    ids=["type and id", "id alone", "sources"],
)
def test_an_order_and_a_refund_of_one_number(
    changed: dict[str, Any], place: ValuePlace | None, balance: int, tmp_path: Path
) -> None:
    spec = SpecDocument.model_validate({**BILLING, **changed, "version": 1, "created": CREATED})
    declared = [attribute("billing.balance", "number", policy="sum")]
    source = FileSource(name="billing", path=Path("in"), type=ValuePlace(path="type"), source=place)
    pipeline = Pipeline(
        tmp_path, sources={"billing": source}, snapshot=snapshot(1, [spec], declared, UNDETECTED)
    )
    event = {"type": "order", "number": 17, "at": "2024-01-01T00:00:00Z", "customer": "7", "amount": 10}
    refund = {**event, "type": "refund", "amount": -3}
    pipeline.process([raw(event, 1, "billing"), raw(refund, 2, "billing")])
    assert pipeline.profile("customer:7")["billing"] == {"balance": balance}
    del event["number"]
    for line, nameless in enumerate((event, {**refund, "number": None}), 3):
        (dead_letter,) = pipeline.map(raw(nameless, line, "billing")).dead_letters
        assert dead_letter.reason is DeadLetterReason.MISSING_ID


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
