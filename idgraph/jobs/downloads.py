"""Documents that jobs leave for a download: sealed, until they expire.

Each is some shared documents whose names begin with its job's id. `begun` comes first and `head` last, which is JSON: `expires_ms`,
`rules`, and `fragments`: keyed hashes of those that it is about, or null for anybody's. The others are sealed parts by
number; the last one is empty.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from idgraph.model.errors import SealError
from idgraph.model.jobs import Download
from idgraph.model.shared_documents import SharedDocuments
from idgraph.model.tombstones import TombstoneNames
from transforms.privacy.record_sealing import DeadLetterSealer

PART_BYTES = 1 << 20
_BEGIN, _HEAD = "downloads/", ".head"

log = logging.getLogger(__name__)


class Downloads:
    """The documents of jobs that can be fetched. Raises StoreError."""

    def __init__(
        self,
        documents: SharedDocuments,
        sealer: DeadLetterSealer,
        hashes: TombstoneNames,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._documents = documents
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
        numbers = count()

        def put(part: bytes) -> None:
            number = next(numbers)
            self._documents.write(_part(job_id, number), self._sealer.seal(part, job_id, _place(number)))

        def write(content: bytes) -> None:
            waiting.extend(content)
            while len(waiting) >= PART_BYTES:
                put(bytes(waiting[:PART_BYTES]))
                del waiting[:PART_BYTES]

        try:
            self._documents.write(f"{_BEGIN}{job_id}.begun", b"")
            yield write
            if waiting:
                put(bytes(waiting))
            put(b"")
            self._documents.write(f"{_BEGIN}{job_id}{_HEAD}", head)
        except BaseException:
            self.remove(job_id)
            raise

    def read(self, job_id: str) -> Download | None:
        """None for one that expired, was erased, cannot be read, or never was."""
        self.sweep()
        for each, head in self._heads():
            if each == job_id and head is not None:
                return Download(partial(self._parts, job_id), head["expires_ms"], head.get("rules", ""))
        return None

    def sweep(self) -> None:
        """Remove those that expired, and those of earlier versions, which are files without an ending."""
        now = self._clock() * 1000
        self._remove(lambda head: head is not None and head["expires_ms"] <= now)
        for name in self._documents.names(f"{_BEGIN}*"):
            if "." not in name:
                self._documents.remove(name)

    def unfinished(self) -> list[str]:
        """The jobs whose documents are being written, or were when their process was killed."""
        names = self._documents.names(f"{_BEGIN}*.*")
        whole = {_job(each) for each in names if each.endswith(_HEAD)}
        return sorted({_job(each) for each in names} - whole)

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
        names = self._documents.names(f"{_BEGIN}{job_id}.*")
        # The head first, and last what shows that there is something; also the part that was not written whole.
        parts = (_part(job_id, number) for number in range(len(names)))
        for name in (f"{_BEGIN}{job_id}{_HEAD}", *parts, f"{_BEGIN}{job_id}.begun"):
            self._documents.remove(name)

    def _remove(self, goes: Callable[[dict[str, Any] | None], bool]) -> None:
        for job_id, head in self._heads():
            if goes(head):
                self.remove(job_id)

    def _heads(self) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """All documents with their heads, None for one that cannot be read: it hurts no other."""
        for name in self._documents.names(f"{_BEGIN}*{_HEAD}"):
            content = self._documents.read(name)
            if content is None:
                # Another process removed it.
                continue
            try:
                head = json.loads(content)
                head |= {"expires_ms": int(head["expires_ms"]), "fragments": head["fragments"]}
            except (ValueError, TypeError, KeyError) as error:
                log.warning("%s cannot be read (%s): remove it", name, type(error).__name__)
                head = None
            yield _job(name), head

    def _parts(self, job_id: str) -> Iterator[bytes]:
        for number in count():
            sealed = self._documents.read(_part(job_id, number))
            if sealed is None:
                raise SealError(f"the document of job {job_id} is cut")
            part = self._sealer.open(sealed, job_id, _place(number))
            if not part:
                return
            yield part


def _part(job_id: str, number: int) -> str:
    return f"{_BEGIN}{job_id}.{number:06}"


def _job(name: str) -> str:
    return name.removeprefix(_BEGIN).partition(".")[0]


def _place(number: int) -> str:
    """The text in place of a dead letter's position: no dead letter has this one."""
    return f"download {number}"
