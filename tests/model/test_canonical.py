"""JSON in and out: no digit lost, equal values equal bytes, a refusal or a value and nothing else."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model import canonical

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=25, min_value=-(10**9), max_value=10**9)
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


def exact(value: Any) -> Any:
    """A value with its numbers in a form that distinguishes them exactly."""
    if type(value) is dict:
        return {key: exact(each) for key, each in value.items()}
    if type(value) is list:
        return [exact(each) for each in value]
    if type(value) in (int, float, Decimal):
        number = Decimal(repr(value)) if type(value) is float else Decimal(value)
        return ("number", number.normalize() if number else Decimal(0))
    return value


@given(values)
def test_what_was_encoded_decodes_to_the_same_numbers(value: Any) -> None:
    assert exact(canonical.decode(canonical.encode(value))) == exact(value)


@given(values)
def test_what_was_decoded_encodes_to_the_same_bytes(value: Any) -> None:
    once = canonical.encode(canonical.decode(canonical.encode(value)))
    assert canonical.encode(canonical.decode(once)) == once


@given(st.dictionaries(texts, st.integers(), max_size=6), st.randoms())
def test_the_order_of_keys_does_not_show(value: dict[str, int], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert canonical.encode(dict(items)) == canonical.encode(value)


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_every_number_keeps_every_digit(literal: str) -> None:
    read = canonical.decode(literal)
    expected = Decimal(literal)
    got = Decimal(repr(read)) if type(read) is float else Decimal(read)
    assert got == expected
    assert Decimal(canonical.encode(read).decode()) == expected


@pytest.mark.parametrize(
    ("literal", "kind"),
    [
        ("1", int),
        ("9007199254740993", int),
        ("1.5", float),
        ("0.1", float),
        ("12.50", float),
        ("0.1234567890123456789", Decimal),
        ("1e400", Decimal),
        ("1e-400", Decimal),
        ("123456789012345678901234567890.5", Decimal),
    ],
)
def test_a_double_where_it_says_the_same_else_a_decimal(literal: str, kind: type) -> None:
    assert type(canonical.decode(literal)) is kind


@pytest.mark.parametrize("literal", ["1e6145", "-1e6145", "1e99999999999999999999", "1e-6145"])
def test_a_number_out_of_all_bounds_is_refused(literal: str) -> None:
    with pytest.raises(canonical.MalformedJSON):
        canonical.decode(literal)


@given(
    st.binary(max_size=20) | st.text(st.sampled_from('{}[]",:0123e.-+ \\utrfn'), max_size=20).map(str.encode)
)
def test_bytes_give_a_value_or_a_refusal(data: bytes) -> None:
    try:
        canonical.decode(data)
    except canonical.MalformedJSON:
        return
    json.loads(data)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"NaN", b"Infinity", b"'a'", b"\xff", b'"\\ud800"', b"[" * 100_000, b"9" * 10_000]
)
def test_what_is_no_json_is_refused_without_quoting_it(data: bytes) -> None:
    with pytest.raises(canonical.MalformedJSON):
        canonical.decode(data)


def test_refusals_quote_nothing() -> None:
    for data in (b'{"a": s3cr3t}', b'{"s3cr3t" 1}', b'"s3cr3t', b"1e99999s3cr3t"):
        with pytest.raises(canonical.MalformedJSON) as caught:
            canonical.decode(data)
        assert "s3cr3t" not in str(caught.value)


def test_encoding_in_the_order_given() -> None:
    assert canonical.encode_ordered({"b": 1, "a": Decimal("1.50")}) == b'{"b":1,"a":1.50}'
    assert canonical.encode({"b": 1, "a": 2}) == b'{"a":2,"b":1}'
