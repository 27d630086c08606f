"""JSON in and out, exact and canonical.

Integers keep every digit. A decimal number becomes a `float` if the float is the same number, otherwise a
`decimal.Decimal`, so no digit is lost between an event and an export. Output is canonical: keys
sorted, no white space, UTF-8; equal values give equal bytes.
"""

from __future__ import annotations

from decimal import Decimal
from math import inf, isfinite
from typing import Any

import msgspec

_LARGEST_EXPONENT = 6144  # of IEEE 754 decimal128; beyond it a few characters would stand for megabytes

# A double keeps 15 significant digits; a literal of at most 15 characters cannot have more.
_SAFE_LITERAL = 15
_SMALLEST_NORMAL = 1e-300  # nearer to zero a double keeps fewer digits, down to none


def exact_number(literal: str) -> float | Decimal:
    """A decimal literal as a float if that is the same number, otherwise as a Decimal.

    Raises ArithmeticError for an exponent out of all bounds.
    """
    value = float(literal)
    if len(literal) <= _SAFE_LITERAL and (_SMALLEST_NORMAL < value < inf or -inf < value < -_SMALLEST_NORMAL):
        return value
    exact = Decimal(literal)
    if abs(exact.adjusted()) > _LARGEST_EXPONENT:
        raise OverflowError("a number is out of range")
    return value if isfinite(value) and Decimal(repr(value)) == exact else exact


_decoder = msgspec.json.Decoder(float_hook=exact_number)
_ordered_encoder = msgspec.json.Encoder(decimal_format="number")
_encoder = msgspec.json.Encoder(order="sorted", decimal_format="number")

MalformedJSON = (msgspec.MsgspecError, RecursionError, UnicodeError, ArithmeticError)
"""Errors of `decode` for bytes that are not JSON. Their messages have offsets, never content."""

decode = _decoder.decode
"""Bytes or text of one JSON value to Python values; raises one of `MalformedJSON`."""


def encode(value: Any) -> bytes:
    """A JSON value as canonical bytes."""
    return _encoder.encode(value)


def encode_ordered(value: Any) -> bytes:
    """A JSON value as bytes, with its keys in their order."""
    return _ordered_encoder.encode(value)
