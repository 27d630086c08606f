"""The file of an export: written whole or not at all, readable by its owner only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from idgraph.files import file_lock, part_of, replacing
from idgraph.model.errors import ConfigError

_EXPORT = b'{"attributes":'
"""The beginning of each line of an export: its keys are sorted."""


def require_place(path: Path) -> None:
    """Raises ConfigError where no new file can be written."""
    if path.exists():
        raise ConfigError(f"{path}: is there already, and is not replaced")
    try:
        with _locked(path) as part:
            part.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def require_export(path: Path, begins: bytes = _EXPORT) -> None:
    """Raises ConfigError where a file stands that is no export, as a keyring or a database: to write one would replace it.
    An export `begins` so."""
    try:
        if not path.is_file():
            return
        if path.absolute().is_relative_to("/dev") or path.absolute().is_relative_to("/proc"):
            raise ConfigError(f"{path}: leave out --output to write to standard output")
        with path.open("rb") as stream:
            beginning = stream.read(len(begins))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if beginning not in (b"", begins):
        raise ConfigError(
            f"{path}: holds something else than an export, and is not replaced; remove it first"
        )


def write_export(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file of profiles, whole or not at all, readable by its owner only; durable when it returns. The
    target of a link is replaced, and the link stays; a pipe or a device is written into. Raises ConfigError,
    also while another export writes the file, and BrokenPipeError where nobody reads a pipe any more."""
    try:
        if path.exists() and not path.is_file():
            with path.open("ab") as stream:
                stream.writelines(lines)
        else:
            file = Path(os.path.realpath(path))
            with _locked(file), replacing(file) as stream:
                stream.writelines(lines)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


@contextmanager
def _locked(file: Path) -> Iterator[Path]:
    """The path of a file while it is not whole. It is removed where writing fails, and overwritten if a
    killed process left it."""

    def refuse() -> None:
        raise ConfigError(f"{file}: another export writes it")

    part = part_of(file)
    with file_lock(part, refuse):
        try:
            yield part
        except BaseException:
            part.unlink(missing_ok=True)
            raise
