"""Why a text is no JSON, in words that help to repair it."""

from __future__ import annotations

import re
from typing import NamedTuple

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
