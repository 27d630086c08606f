"""Access requests: all that is stored of a person, as one JSON document that stays sealed until it expires."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.files import write_atomically
from idgraph.jobs.erase.dead_letter_search import FoundDeadLetter
from idgraph.jobs.job import PagedJob, Plan
from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.errors import StoreError
from idgraph.model.jobs import JobKind, Point, Progress
from idgraph.model.tombstones import TombstoneNames
from ingestion.stages.dead_letters import PayloadSealer

FORMAT = 1
_PLACE = "access request"
"""Stands where a dead letter has its position: none is called so."""

Part = tuple[str, Any]
"""A name in the document, and JSON data."""


class AccessRequest(PagedJob):
    """Collects the parts of a person's document; each is a page. It cannot resume: a document is kept whole or not at all."""

    kind = JobKind.ACCESS

    def __init__(
        self,
        fragments: Collection[str],
        by: str,
        hashes: TombstoneNames,
        parts: Callable[[], Iterator[Part]],
        keep: Callable[[bytes], None],
    ) -> None:
        """`fragments` are the person's, and `by` is who asks. `keep` gets the document, one line of canonical JSON."""
        self.target = hashlib.sha256(b"".join(sorted(map(hashes, fragments)))).hexdigest()[:16]
        self.what = {"by": by}
        self._parts = parts
        self._keep = keep

    def plan(self, _point: Point) -> Plan:
        return Plan("the access request", 1, "document")

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        made_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        document: dict[str, Any] = {"format": FORMAT, "made_at": made_at}
        for name, value in self._parts():
            document[name] = value
            progress.counts[name] = len(value) if isinstance(value, list) else 1
            yield {}
        self._keep(canonical.encode(document) + b"\n")
        progress.done = 1
        yield {}


def dead_letter_part(
    found: Sequence[FoundDeadLetter],
    dead_letters: DeadLetters,
    open_payload: Callable[[bytes, str, str], bytes],
) -> Part:
    """Dead letters of a person. One that may be another person's shows no record."""
    documents = []
    for each in found:
        stored = dead_letters.get(each.id)
        if stored is None:
            continue
        document = {
            "id": each.id,
            "position": each.position,
            "source": stored.source,
            "reason": str(stored.reason),
            "why": each.why,
            "certain": each.certain,
        }
        if each.certain and not stored.holds_changes():
            record = open_payload(stored.payload, stored.id, stored.position)
            document["record"] = record.decode(errors="replace")
        documents.append(document)
    return "dead_letters", documents


class Download(NamedTuple):
    """A document, and when it expires, in epoch milliseconds."""

    content: bytes
    expires_ms: int


class Downloads:
    """Documents in a folder of their own, by the id of their job. Each is one file: a line of JSON (`expires_ms`, and the keyed
    hashes of the person's fragments), then the sealed document. Raises StoreError."""

    def __init__(
        self,
        folder: Path,
        sealer: PayloadSealer,
        hashes: TombstoneNames,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._sealer = sealer
        self._hashes = hashes
        self._clock = clock

    def keep(self, job_id: str, content: bytes, fragments: Collection[str], hours: float) -> None:
        """Durable when it returns."""
        expires = int((self._clock() + hours * 3600) * 1000)
        named = sorted(self._hashes(each).hex() for each in fragments)
        head = json.dumps({"expires_ms": expires, "fragments": named}).encode()
        sealed = self._sealer.seal(content, job_id, _PLACE)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._folder / job_id, head + b"\n" + sealed)
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None

    def read(self, job_id: str) -> Download | None:
        """None for one that expired, was erased, or never was. Raises SealError."""
        self.sweep()
        for file, head, sealed in self._files():
            if file.name == job_id:
                return Download(self._sealer.open(sealed, job_id, _PLACE), head["expires_ms"])
        return None

    def sweep(self) -> None:
        """Remove those that expired."""
        now = self._clock() * 1000
        self._remove(lambda head: head["expires_ms"] <= now)

    def erase(self, fragments: Collection[str]) -> None:
        """Remove the documents of persons with one of these fragments."""
        named = {self._hashes(each).hex() for each in fragments}
        self._remove(lambda head: not named.isdisjoint(head["fragments"]))

    def _remove(self, goes: Callable[[dict[str, Any]], bool]) -> None:
        for file, head, _ in self._files():
            if goes(head):
                file.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[Path, dict[str, Any], bytes]]:
        try:
            for file in sorted(self._folder.glob("[!.]*")):
                head, _, sealed = file.read_bytes().partition(b"\n")
                yield file, json.loads(head), sealed
        except (OSError, ValueError) as error:
            raise StoreError(f"{self._folder}: {type(error).__name__}") from None
