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
from itertools import islice
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


class _Frame:
    """An object or array that is open."""

    __slots__ = ("count", "is_object", "keys", "pointer")

    def __init__(self, is_object: bool, place: str) -> None:
        self.is_object = is_object
        self.pointer = place
        self.count = 0
        self.keys: dict[str, int] = {}


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
        if frame is not None and frame.is_object and key is None:
            key, place = at, frame.pointer + pointer(canonical.decode(word))
            if (first := frame.keys.setdefault(place, at)) != at:
                repeated.append((place, at, first))
            continue
        if frame is not None and not frame.is_object:
            place = f"{frame.pointer}/{frame.count}"
            frame.count += 1
        spots[place] = JsonPosition(at, key)
        key = None
        if word in "{[":
            frames.append(_Frame(word == "{", place))
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
    """Something in a text has to be refused; `_odd` finds it."""


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
    except _OddError:
        message = "a key that stands twice in its object, or a number that no reader has exactly"
        found = list(islice(_odd(text, has_doubles), MOST_PROBLEMS)) or [JsonProblem(0, "", message)]
        raise JsonTextError(found, is_json=True) from None
    except RecursionError:
        raise JsonTextError([JsonProblem(0, "", "nested too deeply")], is_json=False) from None
    except (*canonical.MalformedJSON, ValueError) as error:
        # Values that Python reads and events may not have: numbers out of range, half of a surrogate pair.
        message = f"not JSON as events have it: {error}"
        found = list(islice(_unreadable(text), MOST_PROBLEMS)) or [JsonProblem(0, "", message)]
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


def _unreadable(text: str) -> Iterator[JsonProblem]:
    try:
        spots = find_places(text).spots
    except canonical.MalformedJSON:
        # A key: its place has no name.
        return
    for place, spot in spots.items():
        matched = _TOKEN.match(text, spot.value)
        if matched is None or matched[0] in "{[":
            continue
        try:
            canonical.decode(matched[0])
        except canonical.MalformedJSON as error:
            yield JsonProblem(spot.value, place, f"not JSON as events have it: {error}")


def _odd(text: str, has_doubles: bool) -> Iterator[JsonProblem]:
    found = find_places(text)
    for place, offset, first in found.repeated:
        line, column = place_at(text, first)
        message = f"this key stands twice in its object, first in line {line}, column {column}"
        yield JsonProblem(offset, place, message)
    for place, spot in found.spots.items():
        matched = _TOKEN.match(text, spot.value)
        word = matched[0] if matched else ""
        if word.lstrip("-") in ("NaN", "Infinity"):
            yield JsonProblem(spot.value, place, "not a JSON number: it has no NaN and no infinity")
        elif (
            has_doubles
            and word[:1] in "-0123456789"
            and not word.lstrip("-").isdigit()
            and not _is_double(word)
        ):
            yield JsonProblem(spot.value, place, "no double is equal to this number; write it as text")
