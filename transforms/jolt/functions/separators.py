"""Splitting text as Java's `String.split` does, in bounded time.

Java reads a separator as a regular expression. Plain ones, and single escaped characters, are split as
text. Of the others those are taken that cannot make the search slow: no groups, no look-around, no back
references.
"""

from __future__ import annotations

import re
from functools import lru_cache

from model.errors import TransformError
from transforms.limits import DEFAULT_LIMITS

_META = frozenset(".$|()[{^?*+\\")
_ALLOWED = re.compile(
    r"(?:\\[^0-9A-Za-z]|\\[dDsSwWbBtnrf]|\[\^?(?:\\.|[^\]\\\[&])+\]|[^\\()\[{]|\{\d{1,3}(?:,\d{0,3})?\})+"
)
_QUANTIFIER = re.compile(r"[*+]|\{\d+,\d*\}")
_MAX_QUANTIFIERS = 2


def split(separator: str, text: str) -> list[str]:
    """The parts of `text`; empty ones at the end are dropped. Raises TransformError for a separator or a
    text out of bounds."""
    if len(text) > DEFAULT_LIMITS.max_text:
        raise TransformError("a text is too long to be split")
    plain = plain_separator(separator)
    if plain is not None:
        parts = text.split(plain, DEFAULT_LIMITS.max_nodes) if plain else list(text) or [""]
    else:
        if len(text) > DEFAULT_LIMITS.max_pattern_text:
            raise TransformError("a text is too long to be split by a pattern")
        parts = _split_by(_pattern(separator), text)
    if len(parts) > DEFAULT_LIMITS.max_nodes:
        raise TransformError(f"a text splits into more than {DEFAULT_LIMITS.max_nodes} parts")
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


@lru_cache(maxsize=256)
def _pattern(separator: str) -> re.Pattern[str]:
    if not _ALLOWED.fullmatch(separator) or len(_QUANTIFIER.findall(separator)) > _MAX_QUANTIFIERS:
        raise TransformError("a separator is a pattern that is not supported")
    try:
        return re.compile(separator, re.ASCII)
    except re.error:
        raise TransformError("a separator is no valid pattern") from None


def _split_by(pattern: re.Pattern[str], text: str) -> list[str]:
    parts: list[str] = []
    start = 0
    for found in pattern.finditer(text):
        if found.end() == 0:
            continue
        if found.start() == found.end() == len(text):
            continue
        parts.append(text[start : found.start()])
        start = found.end()
    parts.append(text[start:])
    return parts
