"""Whatever the spec and the payload: the payload stays as it is, the same gives the same, and nothing but
our two errors comes out."""

from __future__ import annotations

import copy
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.errors import SpecError, TransformError
from tests.lanes import examples
from tests.oracle.generation import CONTEXT, chain, document
from tests.transforms.jolt_cases import exact
from transforms import compile_spec
from transforms.spec.operations import OPERATIONS as KNOWN_OPERATIONS

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["a", "b", "c", "id", "x-1", "0", "1", "*", "&", "@", "", "a.b"]) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS | KEYS | st.decimals(allow_nan=False, allow_infinity=False),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=4),
    max_leaves=12,
)
NOTATION = st.text(alphabet="ab*&@$#[]().,|0123=^'\\?~+_", max_size=8)
SPECS = st.recursive(
    NOTATION | SCALARS | st.sampled_from(["=toLower", "=concat(@(1,a),'x')", "^v", "ONE", "MANY", ""]),
    lambda below: (
        st.dictionaries(KEYS | NOTATION, below, min_size=1, max_size=3) | st.lists(below, max_size=2)
    ),
    max_leaves=6,
)
OPERATIONS = st.sampled_from(list(KNOWN_OPERATIONS))


def check(spec: Any, payload: Any) -> None:
    spec_before = copy.deepcopy(spec)
    try:
        transform = compile_spec(spec)
    except SpecError:
        return
    before, context = copy.deepcopy(payload), copy.deepcopy(CONTEXT)
    answers = []
    for _ in range(2):
        try:
            answers.append(exact(transform(payload, context)))
        except TransformError as error:
            answers.append(str(error))
        assert exact(payload) == exact(before)
        assert exact(context) == exact(CONTEXT)
        assert exact(spec) == exact(spec_before)
    assert answers[0] == answers[1]


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(min_value=0), VALUES)
def test_specs_that_make_sense(seed: int, payload: Any) -> None:
    random = Random(seed)
    spec = chain(random)
    check(spec, document(random))
    check(spec, payload)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(OPERATIONS, SPECS), min_size=1, max_size=3), VALUES)
def test_specs_that_make_none(operations: list[tuple[str, Any]], payload: Any) -> None:
    check([{"operation": name, "spec": spec} for name, spec in operations], payload)


@settings(max_examples=examples(100), deadline=None)
@given(st.text(alphabet="ab.[]*?@&|!<>='`{}:,()0 ", max_size=14), VALUES)
def test_expressions(text: str, payload: Any) -> None:
    check({"operation": "jmespath", "spec": {"x": text}}, payload)


@settings(max_examples=examples(100), deadline=None)
@given(VALUES)
def test_numbers_are_carried_through(payload: Any) -> None:
    move = {"operation": "shift", "spec": {"@": "x.y"}}
    assert exact(compile_spec([move, {"operation": "sort"}])(payload)) == {"x": {"y": exact(payload)}}
    assert type(compile_spec(move)(Decimal("1.50"))["x"]["y"]) is Decimal
