"""Splitting text as Java's `String.split` does, in bounded time.

Java reads a separator as a regular expression. Plain ones, and single escaped characters, are split as text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import check_length, limits_at_hand, pay
from transforms.spec.jolt.functions.patterns import read_pattern

_META = frozenset(".$|()[{^?*+\\")
_STEPS_A_CHARACTER = 4


def split(separator: str, text: str) -> list[str]:
    """The parts of `text`; empty ones at the end are dropped. Raises TransformError for a separator or a
    text out of bounds."""
    check_length(len(text))
    limits = limits_at_hand()
    plain = plain_separator(separator)
    if plain is not None:
        parts = text.split(plain, limits.max_nodes) if plain else list(text) or [""]
    else:
        if len(text) > limits.max_pattern_text:
            raise TransformError("a text is too long to be split by a pattern")
        parts = _split_by(separator, text)
    if len(parts) > limits.max_nodes:
        raise TransformError(f"a text splits into more than {limits.max_nodes} parts")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    # Java gives no part at all for a text that is separators only, but the text itself if there is none.
    return [] if parts == [""] and text else parts


@lru_cache(maxsize=256)
def plain_separator(separator: str) -> str | None:
    """The text that a separator stands for, if it is no pattern."""
    if _META.isdisjoint(separator):
        return separator
    if len(separator) == 2 and separator[0] == "\\" and not separator[1].isalnum():
        return separator[1]
    return None


def check_separator(separator: Any) -> None:
    """Raises SpecError for a constant that can separate no text."""
    if type(separator) is str and plain_separator(separator) is None:
        read_pattern(separator)


def _split_by(separator: str, text: str) -> list[str]:
    # A pattern that is known already costs as much as a new one: the same event must end the same.
    pay(_STEPS_A_CHARACTER * len(separator))
    try:
        pattern = read_pattern(separator)
    except SpecError as error:
        raise TransformError(error.message) from None
    parts: list[str] = []
    start = 0
    for begin, end in pattern.spans(text):
        if end == 0 or begin == end == len(text):
            continue
        parts.append(text[start:begin])
        start = end
    parts.append(text[start:])
    return parts
