"""Values as Java prints and orders them. Keys and `concat` see these texts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from idgraph.model.errors import TransformError
from transforms.spec.budget import limits_at_hand, paid, pay_for


def text_of(value: Any) -> str:
    """A JSON value as Java's `toString` gives it. Raises TransformError for a text that is too long."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if kind is float:
        return _double_text(value)
    if kind is dict or kind is list:
        pieces: list[str] = []
        _spell(value, pieces, [limits_at_hand().max_text])
        return paid("".join(pieces))
    pay_for(value)
    return str(value)


def _double_text(value: float) -> str:
    digits = Decimal(repr(value))
    sign, figures, exponent = digits.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    if value == 0:
        return "-0.0" if sign else "0.0"
    if 1e-3 <= abs(value) < 1e7:
        plain = format(digits, "f")
        return plain if "." in plain else plain + ".0"
    shown = "".join(map(str, figures)).rstrip("0") or "0"
    scale = len(figures) - 1 + exponent
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{scale}"


def _spell(value: Any, pieces: list[str], left: list[int]) -> None:
    kind = type(value)
    if kind is dict:
        pieces.append("{")
        for position, (key, below) in enumerate(value.items()):
            pieces.append(f"{', ' if position else ''}{key}=")
            _spell(below, pieces, left)
        pieces.append("}")
    elif kind is list:
        pieces.append("[")
        for position, below in enumerate(value):
            if position:
                pieces.append(", ")
            _spell(below, pieces, left)
        pieces.append("]")
    else:
        piece = text_of(value)
        pieces.append(piece)
        left[0] -= len(piece)
    left[0] -= 2
    if left[0] < 0:
        raise TransformError("a text made of an object or array is too long")


def sort_key(text: str) -> bytes:
    """Orders texts as Java does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def is_blank(text: str) -> bool:
    """Only white space, or nothing."""
    return not text or text.isspace()


def length(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def split_or(key: str) -> list[str]:
    """The keys that `a|b` stands for. Java drops empty ones at the end only."""
    keys = key.split("|")
    while len(keys) > 1 and not keys[-1]:
        keys.pop()
    return keys if keys != [""] or key == "" else []
