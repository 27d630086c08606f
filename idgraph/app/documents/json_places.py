"""Where each value of a JSON text stands.

The decoder that reads events (msgspec) does not say. This scanner is for files that people write: it walks
the text once, without recursion, and accepts what the decoder accepts, to a depth.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from idgraph.model import canonical
from transforms.spec.pointers import pointer

STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)
"""One character within a string, escapes and pairs of them whole."""
_BARE = re.compile(r"[^\s\"{}\[\],:]{1,20}")
_PYTHON = {"True": "true", "False": "false", "None": "null"}


class JsonSyntaxError(Exception):
    """The text is no JSON at `offset`; the message says what was expected and what was found."""

    def __init__(self, message: str, offset: int) -> None:
        self.message = message
        self.offset = offset
        super().__init__(message)


class TextPosition(NamedTuple):
    """For people: both count from 1, columns in characters."""

    line: int
    column: int


def place_at(text: str, offset: int) -> TextPosition:
    """The line and column of an offset."""
    start = text.rfind("\n", 0, offset) + 1
    return TextPosition(text.count("\n", 0, offset) + 1, offset - start + 1)


def unexpected(text: str, at: int, expected: str) -> JsonSyntaxError:
    """Something else than `expected` stands at an offset before the end."""
    bare = _BARE.match(text, at)
    found = bare[0] if bare else text[at]
    message = f"expected {expected}, found '{found}'"
    if found.startswith(("//", "/*", "#")):
        message += "; JSON has no comments"
    elif found.startswith("'"):
        message = f"expected {expected}, found a single quote; texts stand in double quotes"
    elif found in _PYTHON:
        message += f"; JSON has {_PYTHON[found]}"
    return JsonSyntaxError(message, at)


def ended(text: str, expected: str, opened: int | None) -> JsonSyntaxError:
    """The text ends too early; `opened` is the offset of the bracket that is open, if one is."""
    message = f"expected {expected}, found the end of the file"
    if opened is not None:
        line, column = place_at(text, opened)
        message += f"; the '{text[opened]}' of line {line}, column {column} is not closed"
    return JsonSyntaxError(message, len(text))


def bad_string(text: str, start: int) -> JsonSyntaxError:
    """What is wrong with the string that starts at `start`."""
    offset = start + 1
    while offset < len(text) and text[offset] != '"':
        character = CHARACTER.match(text, offset)
        spelled = character[0] if character else ""
        if spelled < " ":
            break
        if spelled[0] == "\\" and not STRING.match(f'"{spelled}"'):
            wrong = f"'{text[offset : offset + 2]}' is no escape"
            return JsonSyntaxError(f"{wrong}; write '\\\\' for a backslash", offset)
        offset += len(spelled)
    if text[offset : offset + 1] in ("", "\n", "\r"):
        return JsonSyntaxError("the quote that opens here is not closed on its line", start)
    return JsonSyntaxError("a control character stands in a text; write it as an escape", offset)


MAX_LEVELS = 200
_LONGEST_INTEGER = 4300  # digits, as Python reads them

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![0-9.])")
_WORD = re.compile(r"true|false|null")


class JsonPosition(NamedTuple):
    """Offsets of a value and of its key (None for array elements and the root)."""

    value: int
    key: int | None


class JsonPositions(NamedTuple):
    """`spots` by JSON pointer. `repeated` are keys that stand twice: pointer, offset, offset of the first."""

    spots: dict[str, JsonPosition]
    repeated: list[tuple[str, int, int]]


def find_places(text: str) -> JsonPositions:
    """Raises JsonSyntaxError."""
    scanner = _Scanner(text)
    scanner.run()
    return JsonPositions(scanner.spots, scanner.repeated)


def offset_within(text: str, string: int, character: int) -> int:
    """The offset of a character of the string that starts at `string`; escapes are one character."""
    offset = string + 1
    for _ in range(character):
        matched = CHARACTER.match(text, offset)
        if matched is None or matched[0] == '"':
            break
        offset = matched.end()
    return offset


class _Frame:
    """An object or array that is open."""

    __slots__ = ("at", "count", "is_object", "pointer", "seen")

    def __init__(self, is_object: bool, place: str, at: int) -> None:
        self.is_object = is_object
        self.pointer = place
        self.at = at
        self.count = 0
        self.seen: dict[str, int] = {}


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.spots: dict[str, JsonPosition] = {}
        self.repeated: list[tuple[str, int, int]] = []
        self._frames: list[_Frame] = []

    def run(self) -> None:
        self._value("", None)
        while self._frames:
            frame = self._frames[-1]
            close = "}" if frame.is_object else "]"
            if self._next() == close:
                self.at += 1
                self._frames.pop()
                continue
            if frame.count:
                self._comma(close)
            if frame.is_object:
                self._member(frame)
            else:
                self._value(f"{frame.pointer}/{frame.count}", None)
            frame.count += 1
        if self._next():
            raise self._unexpected("the end of the file")

    def _next(self) -> str:
        matched = _SPACE.match(self.text, self.at)
        self.at = matched.end() if matched else self.at
        return self.text[self.at : self.at + 1]

    def _comma(self, close: str) -> None:
        if self.text[self.at : self.at + 1] != ",":
            raise self._unexpected(f"',' or '{close}'")
        comma = self.at
        self.at += 1
        if self._next() == close:
            raise JsonSyntaxError(f"expected no ',' before '{close}'", comma)

    def _member(self, frame: _Frame) -> None:
        if self._next() != '"':
            raise self._unexpected(
                "a key in double quotes" if frame.count else "a key in double quotes or '}'"
            )
        start = self.at
        key = canonical.decode(self._string())
        place = frame.pointer + pointer(key)
        if key in frame.seen:
            self.repeated.append((place, start, frame.seen[key]))
        frame.seen.setdefault(key, start)
        if self._next() != ":":
            raise self._unexpected("':' after the key")
        self.at += 1
        self._value(place, start)

    def _value(self, place: str, key: int | None) -> None:
        character = self._next()
        self.spots[place] = JsonPosition(self.at, key)
        if character and character in "{[":
            if len(self._frames) == MAX_LEVELS:
                raise JsonSyntaxError(f"nested deeper than {MAX_LEVELS} levels", self.at)
            self._frames.append(_Frame(character == "{", place, self.at))
            self.at += 1
        elif character == '"':
            self._string()
        elif character and character in "-0123456789":
            self._number()
        elif word := _WORD.match(self.text, self.at):
            self.at = word.end()
        else:
            raise self._unexpected("a value")

    def _string(self) -> str:
        matched = STRING.match(self.text, self.at)
        if matched is None:
            raise bad_string(self.text, self.at)
        try:
            canonical.decode(matched[0])
        except canonical.MalformedJSON:
            raise JsonSyntaxError("the text holds half of a \\u pair", self.at) from None
        self.at = matched.end()
        return matched[0]

    def _number(self) -> None:
        matched = _NUMBER.match(self.text, self.at)
        if matched is None:
            raise self._unexpected("a number as JSON has them")
        literal = matched[0]
        try:
            fits = len(literal) <= _LONGEST_INTEGER
            if fits and (matched[1] or matched[2]):
                canonical.exact_number(literal)
        except ArithmeticError:
            fits = False
        if not fits:
            raise JsonSyntaxError("the number is out of range", self.at)
        self.at = matched.end()

    def _unexpected(self, expected: str) -> JsonSyntaxError:
        if self.at < len(self.text):
            return unexpected(self.text, self.at, expected)
        return ended(self.text, expected, self._frames[-1].at if self._frames else None)
