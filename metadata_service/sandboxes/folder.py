"""The folder of sandboxes: one folder each, with the record of its copy."""

from __future__ import annotations

import builtins
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from idgraph.files import file_lock, write_atomically
from idgraph.model.errors import StoreError
from idgraph.model.sandboxes import NAME_OF_SANDBOX, SandboxRecord
from idgraph.web.refusals import UnknownSubjectError

if TYPE_CHECKING:
    from metadata_service.storage.database import Database

_RECORD = "sandbox.json"
_BASE = "copied.json"
DATABASE, KEY = "metadata.db", "metadata.key"


class SandboxFolder:
    """Sandboxes below one folder. One is there once its record is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, name: str) -> Path:
        return self._folder / name

    @contextmanager
    def opened(self, name: str) -> Iterator[Database]:
        """The database of a sandbox."""
        # Late: most commands only look where a sandbox is.
        from idgraph.signatures import ServiceKey
        from metadata_service.storage.database import opened_database

        place = self.place(name)
        with opened_database(f"sqlite:///{place / DATABASE}", ServiceKey(place / KEY).history) as database:
            yield database

    def list(self) -> list[SandboxRecord]:
        """All, by name."""
        return [self.get(name) for name in self.names()]

    def names(self) -> builtins.list[str]:
        """Their names, sorted."""
        return sorted(file.parent.name for file in self._folder.glob(f"*/{_RECORD}"))

    def get(self, name: str) -> SandboxRecord:
        """Raises UnknownSubjectError, which names those that there are; StoreError for a record that cannot be read."""
        file = self.place(name) / _RECORD
        try:
            if re.fullmatch(NAME_OF_SANDBOX, name) is None:
                raise FileNotFoundError
            return SandboxRecord.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            raise UnknownSubjectError(f"no sandbox has this name; there are: {known}") from None
        except (OSError, ValidationError):
            raise StoreError(f"{file}: cannot be read") from None

    def base(self, name: str) -> dict[str, str]:
        """The digests of what was copied, by item."""
        return dict(json.loads((self.place(name) / _BASE).read_bytes()))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """While a sandbox is made or deleted: two makers would share a name, or ports."""
        self._folder.parent.mkdir(0o700, parents=True, exist_ok=True)
        with file_lock(self._folder.with_suffix(".lock")):
            yield

    def begin(self, name: str) -> None:
        """An empty folder for a sandbox that `finish` completes; what an interrupted copy left is removed."""
        place = self.place(name)
        shutil.rmtree(place, ignore_errors=True)
        for folder in (self._folder, place):
            folder.mkdir(0o700, parents=True, exist_ok=True)

    def finish(self, record: SandboxRecord, base: dict[str, str]) -> None:
        place = self.place(record.name)
        write_atomically(place / _BASE, json.dumps(base).encode())
        write_atomically(place / _RECORD, record.model_dump_json().encode())

    def delete(self, name: str) -> None:
        """Remove one with all that flows wrote there, keys first. Raises UnknownSubjectError, StoreError."""
        self.get(name)
        place = self.place(name)
        try:
            for pattern in ("keyring.json*", "*keys.db*"):
                for file in place.glob(pattern):
                    with suppress(FileNotFoundError):
                        file.unlink()
            shutil.rmtree(place)
        except OSError as error:
            raise StoreError(
                f"{place}: {error.strerror}; stop what runs in the sandbox and delete it again"
            ) from None
