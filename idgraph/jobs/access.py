"""Access requests: all that is stored of a person, as one JSON document."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from idgraph.jobs.erase.dead_letter_search import FoundDeadLetter
from idgraph.jobs.job import PagedJob, Plan
from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.jobs import JobKind, Point, Progress
from idgraph.model.tombstones import TombstoneNames

FORMAT = 1

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
