"""Documents that jobs leave for a download: sealed, in a folder of their own, until they expire.

Each is one file, named by its job. A line of JSON has `expires_ms`, `rules`, and `fragments`: keyed hashes of
those that it is about, or null for anybody's. Sealed parts follow, each after its length in 4 bytes; the last
one is empty.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from idgraph.files import part_of, replacing
from idgraph.model.errors import SealError, StoreError
from idgraph.model.jobs import Download
from idgraph.model.tombstones import TombstoneNames
from transforms.privacy.record_sealing import DeadLetterSealer

PART_BYTES = 1 << 20

log = logging.getLogger(__name__)


class Downloads:
    """The documents of a folder. Raises StoreError."""

    def __init__(
        self,
        folder: Path,
        sealer: DeadLetterSealer,
        hashes: TombstoneNames,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._sealer = sealer
        self._hashes = hashes
        self._clock = clock

    def keep(self, job_id: str, content: bytes, fragments: Collection[str], hours: float) -> None:
        """Keep a document. Durable when it returns."""
        with self.writing(job_id, fragments, hours) as write:
            write(content)

    @contextmanager
    def writing(
        self, job_id: str, fragments: Collection[str] | None, hours: float, rules: str = ""
    ) -> Iterator[Callable[[bytes], None]]:
        """A function that takes the content piece by piece; the document is there, whole and durable, when the block ends.
        With `fragments` None every erasure removes it."""
        expires = int((self._clock() + hours * 3600) * 1000)
        named = None if fragments is None else sorted(self._hashes(each).hex() for each in fragments)
        head = json.dumps({"expires_ms": expires, "rules": rules, "fragments": named}).encode()
        waiting = bytearray()
        number = 0
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self._folder / job_id) as stream:
                stream.write(head + b"\n")

                def put(part: bytes) -> None:
                    nonlocal number
                    sealed = self._sealer.seal(part, job_id, _place(number))
                    stream.write(len(sealed).to_bytes(4, "big") + sealed)
                    number += 1

                def write(content: bytes) -> None:
                    waiting.extend(content)
                    while len(waiting) >= PART_BYTES:
                        put(bytes(waiting[:PART_BYTES]))
                        del waiting[:PART_BYTES]

                yield write
                if waiting:
                    put(bytes(waiting))
                put(b"")
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        except BaseException:
            part_of(self._folder / job_id).unlink(missing_ok=True)
            raise

    def read(self, job_id: str) -> Download | None:
        """None for one that expired, was erased, cannot be read, or never was."""
        self.sweep()
        for file, head in self._files():
            if file.name == job_id and head is not None:
                return Download(partial(self._parts, file), head["expires_ms"], head.get("rules", ""))
        return None

    def sweep(self) -> None:
        """Remove those that expired."""
        now = self._clock() * 1000
        self._remove(lambda head: head is not None and head["expires_ms"] <= now)

    def unfinished(self) -> list[Path]:
        """Files of documents that are being written, or were when their process was killed."""
        return list(self._folder.glob(".*.part"))

    def erase(self, fragments: Collection[str]) -> None:
        """Remove the documents of persons with one of these fragments, and those that may be of anybody, as one that cannot be
        read."""
        named = {self._hashes(each).hex() for each in fragments}

        def goes(head: dict[str, Any] | None) -> bool:
            of = None if head is None else head["fragments"]
            return of is None or not named.isdisjoint(of)

        self._remove(goes)

    def remove(self, job_id: str) -> None:
        """Remove the document of a job."""
        (self._folder / job_id).unlink(missing_ok=True)

    def _remove(self, goes: Callable[[dict[str, Any] | None], bool]) -> None:
        for file, head in self._files():
            if goes(head):
                file.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[Path, dict[str, Any] | None]]:
        """All documents with their heads, None for one that cannot be read: it hurts no other."""
        for file in sorted(self._folder.glob("[!.]*")):
            try:
                with file.open("rb") as stream:
                    head = json.loads(stream.readline())
                head |= {"expires_ms": int(head["expires_ms"]), "fragments": head["fragments"]}
            except FileNotFoundError:
                # Another process removed it.
                continue
            except (OSError, ValueError, TypeError, KeyError) as error:
                log.warning("%s cannot be read (%s): remove it", file, type(error).__name__)
                head = None
            yield file, head

    def _parts(self, file: Path) -> Iterator[bytes]:
        with file.open("rb") as stream:
            stream.readline()
            for number in range(1 << 32):
                sealed = stream.read(int.from_bytes(stream.read(4), "big"))
                if not sealed:
                    raise SealError(f"the document of job {file.name} is cut")
                part = self._sealer.open(sealed, file.name, _place(number))
                if not part:
                    return
                yield part


def _place(number: int) -> str:
    """The text in place of a dead letter's position: no dead letter has this one."""
    return f"download {number}"
