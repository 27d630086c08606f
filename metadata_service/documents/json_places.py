"""Where each value of a JSON text stands: the decoder that reads events (msgspec) does not say."""

from __future__ import annotations

import re
from typing import NamedTuple

from idgraph.model import canonical
from transforms.spec.pointers import pointer

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)
"""One character within a string, escapes and pairs of them whole."""


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
    """Of a text that is JSON."""
    spots: dict[str, JsonPosition] = {}
    repeated: list[tuple[str, int, int]] = []
    frames: list[_Frame] = []
    place, key = "", None
    for token in _TOKEN.finditer(text):
        word, at = token[0], token.start()
        if word in ",:":
            continue
        if word in "}]":
            frames.pop()
            continue
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
