"""No value that a spec can make stops the batch it came with: it is a dead letter of its own."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.specs import SpecDocument
from idgraph.model.stamps import SpecRef, Stamp
from merge.fragments import FragmentState
from tests.retail import Pipeline, attribute, order, raw, records, snapshot, spec
from transforms.schema.data_types import MAX_ARRAY_DEPTH, canonical_value, problem
from transforms.schema.diff import AttributeTree

ORIGIN = Origin(Stamp(0, 1, "s", "e"), SpecRef("m", 1))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        ["a\udfff"],
        {"\ud800": 1},
        10**4300,
        [-(10**4300)],
        float("nan"),
        [float("inf")],
        Decimal("sNaN"),
        Decimal("1E6145"),
        nested(MAX_ARRAY_DEPTH + 1),
        nested(900),
    ],
    ids=[
        "text",
        "in an array",
        "key",
        "integer",
        "in an array too",
        "nan",
        "inf",
        "NaN",
        "exponent",
        "deep",
        "deeper",
    ],
)
def test_what_cannot_be_written_is_reported_without_its_value(value: Any) -> None:
    reason = problem(value)
    assert reason is not None
    assert "ud800" not in reason


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.text(st.characters())
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@given(st.lists(values, max_size=4) | leaves.filter(lambda leaf: leaf is not None))
def test_what_is_let_through_is_stored_and_read_again(value: Any) -> None:
    if problem(value) is not None:
        return
    value = canonical_value(value)
    state = FragmentState()
    registers = {"a": Register(ORIGIN, Kind.PLAIN, value)}
    state.apply(FragmentChange("u:1", ORIGIN, registers, (Identifier("u", "1"),)))
    state.normalise()
    again = FragmentState.decode(state.encode())
    assert canonical.encode(again.registers["a"].value) == canonical.encode(value)


@pytest.mark.parametrize(
    ("expression", "sent"),
    [
        ("floor(to_number(cart.total))", b"1E5000"),
        ("cart.total", b"[" * 70 + b"]" * 70),
        ("cart.total", b"[" * 900 + b"]" * 900),
    ],
    ids=["too many digits", "deep", "deeper"],
)
def test_a_hostile_event_is_one_dead_letter(tmp_path: Path, expression: str, sent: bytes) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[with_odd(expression)]))
    hostile = raw(order(7, 9).value.replace(b'"12.50"', sent), 9)
    assert sent in hostile.value
    output = pipeline.map(order(1, 1), hostile, order(2, 2))
    assert [(dead_letter.position, dead_letter.reason) for dead_letter in output.dead_letters] == [
        ("file:orders/x.jsonl#9", DeadLetterReason.TRANSFORM_FAILED)
    ]
    assert pipeline.process([order(1, 1), hostile, order(2, 2)]).written == 2


def test_a_spec_that_makes_no_text_hurts_only_its_own_events(tmp_path: Path) -> None:
    odd = with_odd('`"\\ud800"`')
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[odd, spec("segment")]))
    given = [order(1, 1), *(record for record in records(20) if record.source == "segment")]
    output = pipeline.map(*given)
    assert [dead_letter.source for dead_letter in output.dead_letters] == ["orders"]
    assert pipeline.process(given).written > 0


def with_odd(expression: str) -> SpecDocument:
    """The orders' spec, with one more attribute."""
    document = spec("orders")
    operations: Any = [*document.operations]
    operations[0] = {**operations[0], "spec": {**operations[0]["spec"], "odd": expression}}
    return document.model_copy(update={"operations": operations})


@pytest.mark.parametrize("path", [".a", "a..b", ".".join("a" * 65), "a" * 1025])
def test_a_declared_path_that_no_event_can_have_hurts_nothing(path: str) -> None:
    declared = attribute("x", encryption="protected").model_copy(update={"path": path})
    tree = AttributeTree(snapshot(declared=[declared, attribute("b", encryption="protected")]))
    assert tree.policy("b").is_protected
