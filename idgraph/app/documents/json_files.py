"""JSON files that people write, read so that every mistake can be shown where it stands."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.app.documents.json_places import (
    JsonPositions,
    JsonSyntaxError,
    find_places,
    offset_within,
    place_at,
)
from idgraph.model import canonical
from idgraph.model.errors import ConfigError, IdgraphError, SpecError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Problem(NamedTuple):
    """One mistake. Line and column count from 1; `pointer` is empty for the whole file."""

    line: int
    column: int
    pointer: str
    message: str
    hint: str | None

    @property
    def reported(self) -> str:
        """All but the line and column."""
        pointer = f"{self.pointer}: " if self.pointer else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{pointer}{self.message}{hint}"

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.reported}"


class DocumentError(IdgraphError):
    """A file that a person wrote is wrong: one line of text for each problem. `warnings` are of what is not wrong."""

    def __init__(self, file: Path, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.file = file
        self.problems = sorted(problems)
        self.warnings = tuple(warnings)
        super().__init__("\n".join(f"{file}:{problem}" for problem in self.problems))


class JsonFile:
    """A file's JSON value and the places of its parts. It must be UTF-8; a byte order mark is let in."""

    def __init__(self, file: Path) -> None:
        """Raises DocumentError for what is no JSON, ConfigError for a file that cannot be read."""
        self.file = file
        try:
            self.text = self._decoded(file.read_bytes())
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
        try:
            self._places: JsonPositions = find_places(self.text)
        except JsonSyntaxError as error:
            raise self._refused(self.text, error.offset, f"not JSON: {error.message}") from None
        self.content: Any = canonical.decode(self.text)
        if self._places.repeated:
            raise DocumentError(file, map(self._repeated, self._places.repeated))

    def locate(self, error: SpecError) -> Problem:
        """Where a mistake stands: at the value, at the key of a longer value, or at the nearest above."""
        pointer = error.pointer
        while pointer not in self._places.spots:
            pointer = pointer.rpartition("/")[0]
        spot = self._places.spots[pointer]
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

    def _repeated(self, repeated: tuple[str, int, int]) -> Problem:
        pointer, offset, first = repeated
        line, column = place_at(self.text, first)
        message = f"this key stands twice in its object, first in line {line}, column {column}"
        return Problem(*place_at(self.text, offset), pointer, message, None)
