"""Texts and numbers as Java treats them: how it prints and orders values, and its `Integer`, `Long` and `Double`.

The size of a JSON integer decides which of Java's types it has. Results of `toLong` and its like are a `Long` of any
size: `Long` marks them until the chain ends.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from itertools import pairwise
from typing import Any

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import limits_at_hand, paid, pay_for


def split_path(path: str) -> list[str]:
    """The keys of a dotted path, `a[0]` being short for `a.[0]`. Empty keys are skipped."""
    keys: list[str] = []
    text = _dot_before_brackets(path)
    position = 0
    key = ""
    escaped = False
    while position < len(text):
        character = text[position]
        position += 1
        escapes = character == "\\" and not escaped
        if escaped and character not in ".\\":
            key += "\\" + character
        elif character == "@":
            reference, position = _at_reference(text, position, path)
            key += "@" + reference
            if "[" not in key or "]" in key:
                keys.append(key)
                key = ""
        elif character == "." and not escaped:
            if key:
                keys.append(key)
            key = ""
        elif not escapes:
            key += character
        escaped = escapes
    if key:
        keys.append(key)
    return keys


def _dot_before_brackets(path: str) -> str:
    pieces = [path[:1]]
    for before, character in pairwise(path):
        if character == "[" and before not in "\\@.":
            pieces.append(".")
        pieces.append(character)
    return "".join(pieces)


def _at_reference(text: str, position: int, path: str) -> tuple[str, int]:
    """The path after an `@`, with the position after it; `@a.b` is `@(a)` and then `b`."""
    rest = text[position:]
    if not rest:
        return "", position
    if rest[0] == ".":
        raise SpecError(f"'@' must be followed by a level or a key in '{path}'")
    if rest[0] != "(":
        key, dot, _ = rest.partition(".")
        return (f"({key})", position + len(key) + 1) if dot else (key, len(text))
    end = rest.find(")")
    if end < 0:
        raise SpecError(f"'@(' is not closed in '{path}'")
    if rest.find("(", 1, end) >= 0:
        raise SpecError(f"'@(' holds another '(' in '{path}'")
    return rest[: end + 1], position + end + 1


def without_escaped(key: str) -> str:
    """The key without its escaped characters: what is left may be wildcards."""
    kept: list[str] = []
    escaped = False
    for character in key:
        if character == "\\":
            escaped = not escaped
        else:
            if not escaped:
                kept.append(character)
            escaped = False
    return "".join(kept)


def unescaped(key: str) -> str:
    """The key with its escapes resolved."""
    kept: list[str] = []
    escaped = False
    for character in key:
        if character == "\\" and not escaped:
            escaped = True
            continue
        kept.append(character)
        escaped = False
    return "".join(kept)


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


INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
_INT_BITS, _LONG_BITS = 2**32 - 1, 2**64 - 1

_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
# Longer texts are no 64-bit number, and Python refuses to read very long ones.
_LONGEST_INTEGER = 400
_BLANKS = "".join(map(chr, range(33)))
_SURE_LONG = 18
"""So many digits are a 64-bit number for certain."""


class Long(int):
    """An integer that Java holds in a `Long` although it would fit an `Integer`."""

    __slots__ = ()


_NUMBERS = frozenset([int, Long, float, Decimal])


def parse_int(text: str) -> int | None:
    """`Integer.parseInt`; None where it throws."""
    value = _parse(text)
    return value if value is not None and INT_MIN <= value <= INT_MAX else None


def _parse(text: str) -> int | None:
    if len(text) > _LONGEST_INTEGER or not _INTEGER.fullmatch(text):
        return None
    return int(text)


def to_number(value: Any) -> int | float | Decimal | None:
    """A number as it is, text as the number it spells, else None."""
    kind = type(value)
    if kind is not str:
        return value if kind in _NUMBERS else None
    if len(value) <= _SURE_LONG and value.isascii():
        if value.isdigit():
            return int(value)
        if value.replace(".", "", 1).isdigit():
            return float(value)
    whole = _parse(paid(value))
    if whole is not None and LONG_MIN <= whole <= LONG_MAX:
        return whole
    matched = _DOUBLE.fullmatch(value.strip(_BLANKS))
    if not matched:
        return None
    double = float(matched[1])
    return double if math.isfinite(double) else None


def to_int(value: int | float | Decimal) -> int:
    """`Number.intValue`: integers wrap, decimals are cut and saturate."""
    if isinstance(value, int):
        if INT_MIN <= value <= INT_MAX:
            return value if type(value) is int else int(value)
        return ((value & _INT_BITS) - INT_MIN & _INT_BITS) + INT_MIN
    return min(max(_cut(value), INT_MIN), INT_MAX)


def to_long(value: int | float | Decimal) -> int:
    """`Number.longValue`."""
    if isinstance(value, int):
        if LONG_MIN <= value <= LONG_MAX:
            return value if type(value) is int else int(value)
        return ((value & _LONG_BITS) - LONG_MIN & _LONG_BITS) + LONG_MIN
    return min(max(_cut(value), LONG_MIN), LONG_MAX)


def _cut(value: float | Decimal) -> int:
    """The whole part; of what is out of all bounds, only the sign counts."""
    if isinstance(value, Decimal) and value.adjusted() > _SURE_LONG + 1:
        return -(10**20) if value < 0 else 10**20
    return int(value)


def to_double(value: int | float | Decimal) -> float | None:
    """`Number.doubleValue`; None instead of an infinity, which JSON cannot hold."""
    try:
        double = float(value)
    except OverflowError:
        return None
    return double if math.isfinite(double) else None


def kind_of(value: Any) -> str:
    """The Java class of a JSON value, as far as functions distinguish classes."""
    kind = type(value)
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return "Integer"
        return "Long" if LONG_MIN <= value <= LONG_MAX else "BigInteger"
    if kind is float or kind is Decimal:
        return "Double"
    return kind.__name__


def is_int(value: Any) -> bool:
    """Whether Java would hold the value in an `Integer`."""
    return type(value) is int and INT_MIN <= value <= INT_MAX


def unmark(value: Any) -> Any:
    """Turn `Long` markers into plain integers, in place; gives the value back."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return int(value) if kind is Long else value
    seen: set[int] = set()

    def visit(node: Any) -> Any:
        kind = type(node)
        if kind is Long:
            return int(node)
        if (kind is dict or kind is list) and id(node) not in seen:
            seen.add(id(node))
            for key, below in node.items() if kind is dict else enumerate(node):
                if (plain := visit(below)) is not below:
                    node[key] = plain
        return node

    return visit(value)
