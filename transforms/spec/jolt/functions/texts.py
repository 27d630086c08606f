"""Jolt's functions of strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transforms.spec.budget import check_length, paid, pay_for
from transforms.spec.jolt.functions.calling import Function, after, is_text, of_text, on_array
from transforms.spec.jolt.functions.quick import short_concat, short_join, short_split
from transforms.spec.jolt.functions.separators import check_separator, split
from transforms.spec.jolt.numbers import is_int
from transforms.spec.jolt.text import length, text_of
from transforms.spec.jolt.views import MISSING

_BLANKS = "".join(map(chr, range(33)))
_WIDEST_PAD = 500


def _concat(values: Sequence[Any]) -> str:
    return _bounded(
        [value if type(value) is str else text_of(value) for value in values if value is not None]
    )


def _join(separator: str, values: list[Any]) -> str:
    pieces: list[str] = []
    for position, value in enumerate(values):
        text = value if type(value) is str else "" if value is None else text_of(value)
        if text:
            pieces.append(text)
            # A separator follows even if only empty values do: so does Jolt.
            if position < len(values) - 1:
                pieces.append(separator)
    return _bounded(pieces)


def _bounded(pieces: list[str]) -> str:
    check_length(sum(map(len, pieces)))
    return paid("".join(pieces))


def _split(separator: str, values: list[Any]) -> list[Any]:
    return [_split_text(separator, value) if type(value) is str else value for value in values]


def _split_one(separator: str, value: Any) -> Any:
    return _split_text(separator, value) if type(value) is str else MISSING


def _split_text(separator: str, text: str) -> Any:
    parts = split(separator, paid(text))
    pay_for(parts)
    return parts


def _substring(arguments: Sequence[Any]) -> Any:
    if len(arguments) != 3:
        return MISSING
    text, start, end = arguments
    if type(text) is not str or not is_int(start) or not is_int(end):
        return MISSING
    if not 0 <= start < end <= length(paid(text)):
        return MISSING
    if len(text) == length(text):
        return text[start:end]
    units = text.encode("utf-16-le", "surrogatepass")
    return units[2 * start : 2 * end].decode("utf-16-le", "replace")


def _pad(left: bool) -> Function:
    def pad(text: str, arguments: list[Any]) -> Any:
        if len(arguments) < 2:
            return MISSING
        width, filler = arguments[0], arguments[1]
        if not is_int(width) or type(filler) is not str or len(filler) != 1 or not 0 < width <= _WIDEST_PAD:
            return MISSING
        padding = filler * (width - length(paid(text)))
        return padding + text if left else text + padding

    return after(is_text, pad)


TEXT_FUNCTIONS: dict[str, Function] = {
    "toLower": of_text(str.lower),
    "toUpper": of_text(str.upper),
    "trim": of_text(str.strip, _BLANKS),
    "concat": on_array(_concat)._replace(shorten=short_concat),
    "join": after(is_text, _join)._replace(shorten=short_join),
    "split": after(is_text, _split, _split_one)._replace(shorten=short_split, check=check_separator),
    "substring": on_array(_substring),
    "leftPad": _pad(left=True),
    "rightPad": _pad(left=False),
}
