"""Decimal numbers as Avro and Confluent's Protobuf type write them: an integer, and how many of its digits are decimals."""

from __future__ import annotations

from decimal import Decimal


def exact_decimal(unscaled: bytes, scale: int) -> Decimal:
    """A big-endian two's complement integer, shifted by `scale` digits; no digit is lost. Raises ValueError for more
    digits than Python turns into text (4,300)."""
    # As text: any context of arithmetic would round.
    return Decimal(f"{int.from_bytes(unscaled, 'big', signed=True)}E{-scale}")
