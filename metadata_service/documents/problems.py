"""JSON documents that people write: read with the position of each mistake, and pydantic's errors in plain words."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from idgraph.model import json_text
from idgraph.model.documents import NAME_PATTERN
from idgraph.model.errors import ConfigError, IdgraphError, SpecError
from idgraph.model.json_text import JsonPosition, find_places, offset_within, place_at
from idgraph.model.paths import located, pointer
from idgraph.model.specs import IDENTIFIER_TYPE_PATTERN
from idgraph.model.text import name_hint
from transforms.spec.pointers import found

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Problem(NamedTuple):
    """One mistake. Line and column count from 1; `pointer` is empty for the whole file."""

    line: int
    column: int
    pointer: str
    message: str
    hint: str | None

    @property
    def text(self) -> str:
        """All but the line and column."""
        pointer = f"{self.pointer}: " if self.pointer else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{pointer}{self.message}{hint}"

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.text}"


class DocumentError(IdgraphError):
    """A file that a person wrote is wrong: one line of text for each problem. `warnings` are of what is not wrong."""

    def __init__(self, file: Path, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.file = file
        self.problems = sorted(problems)
        self.warnings = tuple(warnings)
        super().__init__("\n".join(f"{file}:{problem}" for problem in self.problems))


class JsonFile:
    """A file's JSON value and the places of its parts. It must be UTF-8; a byte order mark is let in."""

    def __init__(self, file: Path, text: str | None = None) -> None:
        """`-` is standard input; with `text` nothing is read. Raises DocumentError for what is no JSON, ConfigError for a file
        that cannot be read."""
        self.file = file
        try:
            raw = (
                b""
                if text is not None
                else sys.stdin.buffer.read()
                if file == Path("-")
                else file.read_bytes()
            )
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
        self.text = self._decoded(raw) if text is None else text
        try:
            self.content: Any = json_text.read(self.text)
        except json_text.JsonTextError as error:
            raise DocumentError(
                file,
                [
                    Problem(*place_at(self.text, each.offset), each.pointer, each.message, None)
                    for each in error.problems
                ],
            ) from None

    @cached_property
    def _spots(self) -> dict[str, JsonPosition]:
        return find_places(self.text).spots

    @classmethod
    def of_text(cls, text: str) -> JsonFile:
        """A text that is in no file."""
        return cls(Path("spec"), text)

    def locate(self, error: SpecError) -> Problem:
        """The place of a mistake: at the value, at the key of a longer value, or at the nearest above."""
        pointer = error.pointer
        while pointer not in self._spots:
            pointer = pointer.rpartition("/")[0]
        spot = self._spots[pointer]
        opens = self.text[spot.value] in "{["
        offset = spot.key if opens and spot.key is not None else spot.value
        if error.offset is not None and self.text[spot.value] == '"':
            offset = offset_within(self.text, spot.value, error.offset)
        return Problem(*place_at(self.text, offset), error.pointer, error.message, error.hint)

    def refuse(self, errors: Iterable[SpecError], warnings: Iterable[Problem] = ()) -> DocumentError:
        """The error that reports all of these."""
        return DocumentError(self.file, map(self.locate, errors), warnings)

    def _decoded(self, raw: bytes) -> str:
        if raw.startswith(_UTF16):
            raise self._refused("", 0, "expected UTF-8, found UTF-16; save the file as UTF-8")
        raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            before = raw[: error.start].decode()
            message = f"expected UTF-8, found the byte 0x{raw[error.start]:02x}; save the file as UTF-8"
            raise self._refused(before, len(before), message) from None

    def _refused(self, text: str, offset: int, message: str) -> DocumentError:
        return DocumentError(self.file, [Problem(*place_at(text, offset), "", message, None)])


_PATTERNS = {
    NAME_PATTERN: "1 to 100 letters, digits, '_', '.' or '-', the first a letter or digit",
    IDENTIFIER_TYPE_PATTERN: "1 to 64 letters, digits or '_', the first a letter",
}
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of fewer digits",
    "int_from_float": "an integer",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_too_short": "text that is not empty",
    "string_too_long": "at most {max_length} characters",
    "enum": "{expected}",
    "literal_error": "{expected}",
}


def model_problems(error: ValidationError, content: Any, model: type[BaseModel]) -> Iterator[SpecError]:
    """One SpecError for each place that is wrong, its pointer seen from `content`."""
    seen: set[tuple[str, str]] = set()
    for wrong in error.errors(include_url=False):
        problem = _problem(wrong, content, model)
        # A union complains once for each of its members.
        if problem is not None and (problem.pointer, problem.message) not in seen:
            seen.add((problem.pointer, problem.message))
            yield problem


def _problem(wrong: Mapping[str, Any], content: Any, model: type[BaseModel]) -> SpecError | None:
    keys, context = located(wrong["loc"], content), wrong.get("ctx", {})
    place = pointer(*keys)
    kind = wrong["type"]
    if kind == "missing":
        return SpecError(f"the key '{wrong['loc'][-1]}' is missing", place)
    if kind == "extra_forbidden":
        absent = [field for field in _fields(model, keys) if field not in _value_at(content, keys[:-1])]
        return SpecError(f"there is no key '{keys[-1]}' here", place, name_hint(str(keys[-1]), absent))
    if kind == "value_error":
        message = str(wrong["msg"]).removeprefix("Value error, ")
        return SpecError(message, place or _rule_place(message, content))
    if kind == "too_short":
        if len(wrong["input"]) >= context["min_length"]:
            return None  # The elements are wrong, which is reported by itself.
        return SpecError(f"expected at least {context['min_length']}, found {found(wrong['input'])}", place)
    return SpecError(f"expected {_expected(wrong, keys)}, found {found(wrong['input'])}", place, _near(wrong))


def _rule_place(message: str, content: Any) -> str:
    """The place at which a rule of the whole document was broken."""
    for word, key in (("identifier", "identifiers"), ("scope", "scope")):
        if word in message and _value_at(content, [key]) is not None:
            return pointer(key)
    return ""


def _expected(wrong: Mapping[str, Any], keys: list[str | int]) -> str:
    if keys == ["operations"]:
        return "an array of operations, or one operation"
    context = wrong.get("ctx", {})
    if wrong["type"] == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
    if wrong["type"] in _EXPECTED:
        return _EXPECTED[wrong["type"]].format(**context)
    return re.sub(r"^.* should (be |have )?", "", str(wrong["msg"]))


def _near(wrong: Mapping[str, Any]) -> str | None:
    if wrong["type"] not in ("enum", "literal_error") or not isinstance(wrong["input"], str):
        return None
    return name_hint(wrong["input"], re.findall(r"'([^']*)'", wrong["ctx"]["expected"]))


def _fields(model: type[BaseModel], keys: list[str | int]) -> Iterator[str]:
    """The fields of the (one level of) model that holds the last of `keys`."""
    if len(keys) == 1:
        yield from model.model_fields
        return
    for argument in getattr(model.model_fields[str(keys[0])].annotation, "__args__", ()):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            yield from argument.model_fields


def _value_at(content: Any, keys: list[str | int]) -> Any:
    for key in keys:
        if isinstance(content, dict):
            content = content.get(key)
        elif isinstance(content, list) and isinstance(key, int) and key < len(content):
            content = content[key]
        else:
            return None
    return content
