"""Values as Java prints and orders them. Keys and `concat` see these texts."""

from __future__ import annotations

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
    """What follows an `@`, with the position after it; `@a.b` is `@(a)` and then `b`."""
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
