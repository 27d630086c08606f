"""The one reader of JSON that people and clients write: bodies of requests, documents in files.

It reads as events are read, and refuses what another reader would change in silence: a key that stands twice in its
object, NaN and infinity, and where documents are stored a number that no double is equal to. It says where each value
stands; the decoder that reads events (msgspec) does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import count, islice
from typing import Any, NamedTuple

from idgraph.model import canonical
from idgraph.model.errors import IdgraphError
from idgraph.model.paths import pointer

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)
"""One character within a string, escapes and pairs of them whole."""


MOST_PROBLEMS = 100
"""Reported of one text."""
_MOST_POINTERS = 16 << 20
"""Characters of all pointers: below a long key each value has one as long. No place is noted behind them."""


class TextPosition(NamedTuple):
    """For people: both count from 1, columns in characters."""

    line: int
    column: int


def place_at(text: str, offset: int) -> TextPosition:
    """The line and column of an offset."""
    start = text.rfind("\n", 0, offset) + 1
    return TextPosition(text.count("\n", 0, offset) + 1, offset - start + 1)


class JsonPosition(NamedTuple):
    """Offsets of a value and of its key (None for array elements and the root)."""

    value: int
    key: int | None


class JsonPositions(NamedTuple):
    """`spots` by JSON pointer. `repeated` are keys that stand twice: pointer, offset, offset of the first."""

    spots: dict[str, JsonPosition]
    repeated: list[tuple[str, int, int]]


class _Frame(NamedTuple):
    """An object, or an array, that is open: its pointer, the offsets of its keys, or the number of its next element."""

    place: str
    keys: dict[str, int] | None
    numbers: Iterator[int]


def find_places(text: str) -> JsonPositions:
    """The positions in a text that is JSON; with very long or very deep keys, in its beginning alone."""
    spots: dict[str, JsonPosition] = {}
    repeated: list[tuple[str, int, int]] = []
    frames: list[_Frame] = []
    place, key, size = "", None, 0
    for token in _TOKEN.finditer(text):
        word, at = token[0], token.start()
        if word in ",:":
            continue
        if word in "}]":
            frames.pop()
            continue
        size += len(place)
        if size > _MOST_POINTERS:
            break
        frame = frames[-1] if frames else None
        if frame is not None and frame.keys is not None and key is None:
            key, place = at, frame.place + pointer(canonical.decode(word))
            if (first := frame.keys.setdefault(place, at)) != at:
                repeated.append((place, at, first))
            continue
        if frame is not None and frame.keys is None:
            place = f"{frame.place}/{next(frame.numbers)}"
        spots[place] = JsonPosition(at, key)
        key = None
        if word in "{[":
            frames.append(_Frame(place, {} if word == "{" else None, count()))
    return JsonPositions(spots, repeated)


def offset_within(text: str, string: int, character: int) -> int:
    """The offset of a character of the string that starts at `string`; escapes are one character."""
    offset = string + 1
    for _ in range(character):
        matched = _CHARACTER.match(text, offset)
        if matched is None or matched[0] == '"':
            break
        offset = matched.end()
    return offset


class JsonProblem(NamedTuple):
    """The faults in a text. `pointer` is empty where the text as a whole is."""

    offset: int
    pointer: str
    message: str


class JsonTextError(IdgraphError):
    """A text is no JSON, or none that keeps its meaning. `is_json`: any other reader would take it."""

    def __init__(self, problems: list[JsonProblem], is_json: bool) -> None:
        self.problems = problems
        self.is_json = is_json
        super().__init__(problems[0].message)


class _OddError(Exception):
    """Something in a text has to be refused; `_problems` finds it."""

    def __str__(self) -> str:
        return "a key that stands twice in its object, or a number that no reader has exactly"


def read(text: str, has_doubles: bool = False) -> Any:
    """The value of a text. With `has_doubles` each number must be a double or an integer. Raises JsonTextError."""
    try:
        json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_constant=_refuse,
            parse_float=_read_double if has_doubles else None,
        )
        return canonical.decode(text)
    except json.JSONDecodeError as error:
        raise JsonTextError([JsonProblem(error.pos, "", f"not JSON: {error.msg}")], is_json=False) from None
    except RecursionError:
        raise JsonTextError([JsonProblem(0, "", "nested too deeply")], is_json=False) from None
    except (_OddError, *canonical.MalformedJSON, ValueError) as error:
        # Values that Python reads and events may not have: numbers out of range, half of a surrogate pair.
        message = str(error) if isinstance(error, _OddError) else _unreadable(error)
        found = list(islice(_problems(text, has_doubles), MOST_PROBLEMS)) or [JsonProblem(0, "", message)]
        raise JsonTextError(found, is_json=True) from None


def _read_object(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
        raise _OddError


def _refuse(_constant: str) -> None:
    raise _OddError


def _read_double(literal: str) -> None:
    if not _is_double(literal):
        raise _OddError


def _is_double(literal: str) -> bool:
    try:
        return not isinstance(canonical.exact_number(literal), Decimal)
    except ArithmeticError:
        return False


def _unreadable(error: Exception) -> str:
    return f"not JSON as events have it: {error}"


def _problems(text: str, has_doubles: bool) -> Iterator[JsonProblem]:
    try:
        found = find_places(text)
    except canonical.MalformedJSON:
        # A key: its place has no name.
        return
    for place, offset, first in found.repeated:
        line, column = place_at(text, first)
        message = f"this key stands twice in its object, first in line {line}, column {column}"
        yield JsonProblem(offset, place, message)
    for place, spot in found.spots.items():
        matched = _TOKEN.match(text, spot.value)
        if matched is not None and (fault := _fault(matched[0], has_doubles)):
            yield JsonProblem(spot.value, place, fault)


def _fault(word: str, has_doubles: bool) -> str | None:
    """The fault of a text, a number, a constant, or the beginning of an object or array."""
    if word.lstrip("-") in ("NaN", "Infinity"):
        return "not a JSON number: it has no NaN and no infinity"
    is_fraction = word[0] in "-0123456789" and not word.lstrip("-").isdigit()
    if has_doubles and is_fraction and not _is_double(word):
        return "no double is equal to this number; write it as text"
    try:
        if word not in "{[":
            canonical.decode(word)
    except canonical.MalformedJSON as error:
        return _unreadable(error)
    return None
