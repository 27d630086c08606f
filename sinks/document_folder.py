"""Shared documents as files of one directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from idgraph.files import exclusive_lock, file_lock, part_of, write_atomically, write_unflushed
from idgraph.model.errors import StoreError


class DocumentFolder:
    """`SharedDocuments` below a directory, for its owner only. The lease of a name is a lock in the folder of this name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        try:
            return self._place(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(name, error) from None

    def write(self, name: str, content: bytes, durable: bool = True) -> None:
        try:
            (write_atomically if durable else write_unflushed)(self._made(name), content)
        except OSError as error:
            raise self._failed(name, error) from None

    def add(self, name: str, content: bytes) -> bool:
        try:
            place = self._made(name)
            # One for all documents of the folder: it stays.
            with file_lock(place.with_name(".add.lock")):
                if place.exists():
                    return False
                write_atomically(place, content)
        except OSError as error:
            raise self._failed(name, error) from None
        return True

    def remove(self, name: str) -> bool:
        try:
            # Of a process that was killed while it wrote.
            part_of(self._place(name)).unlink(missing_ok=True)
            self._place(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failed(name, error) from None
        return True

    def names(self, pattern: str) -> list[str]:
        try:
            found = [each for each in self._directory.glob(pattern) if each.is_file()]
        except OSError as error:
            raise self._failed(pattern, error) from None
        names = (each.relative_to(self._directory) for each in found if not each.name.startswith("."))
        return sorted(map(str, names))

    @contextmanager
    def lease(self, name: str) -> Iterator[_Lock]:
        place = self._place(name)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._failed(name, error) from None
        with exclusive_lock(place):
            yield _Lock()

    def close(self) -> None:
        """Nothing is open."""

    def _place(self, name: str) -> Path:
        return self._directory / name

    def _made(self, name: str) -> Path:
        place = self._place(name)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def _failed(self, name: str, error: OSError) -> StoreError:
        return StoreError(f"{self._place(name)}: {error.strerror}")


class _Lock:
    """The system keeps it for as long as the process lives."""

    def require(self) -> None: ...
