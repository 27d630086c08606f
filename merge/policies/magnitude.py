"""The order of JSON values: false, true, numbers by their exact value, texts by code points, then the rest."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from idgraph.model import canonical

NUMBERS = frozenset({int, float, Decimal})


def magnitude(value: Any) -> tuple[int, Any]:
    """What a value compares by. Values of one magnitude are equal, but may be written otherwise: 1 and 1.0."""
    kind = type(value)
    if kind is bool:
        return 0, value
    if kind in NUMBERS:
        return 1, exact(value)
    if kind is str:
        return 2, value
    return 3, canonical.encode(value)


def exact(number: float | Decimal) -> int | Decimal:
    """The number that was written: 0.1 is one tenth, and not the double next to it."""
    return Decimal(repr(number)) if type(number) is float else number  # type: ignore[return-value]
