"""Access requests: all that is stored of a person, as one JSON document."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from idgraph.jobs.erase.dead_letter_search import FoundDeadLetter
from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext
from idgraph.model import canonical
from idgraph.model.callers import Scope
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import DamagedStateError, QueryError, StoreError
from idgraph.model.identifiers import Identifier, given_identifier
from idgraph.model.jobs import JobKind, JobType, Point, Progress
from merge.page_codec import read_page
from profile_service.access_document import access_parts
from profile_service.history import History
from profile_service.links import Links
from profile_service.timeline import entry_document

if TYPE_CHECKING:
    from merge.identity.components import Person
    from profile_service.reader import ProfileReader

FORMAT = 1

Part = tuple[str, Any]
"""A name in the document, and JSON data."""


class AccessParameters(StrictDocument):
    """The person whose data is asked for."""

    identifier: str = Field(max_length=4096, description="`type:value`.")


class AccessRequest(PagedJob):
    """Collects the parts of a person's document; each is a page. It cannot resume: a document is kept whole or not at all."""

    kind = JobKind.ACCESS

    def __init__(self, person: Person, context: JobContext) -> None:
        self.fragments = [each.stored.id for each in person.members]
        self.target = hashlib.sha256(b"".join(sorted(map(context.names, self.fragments)))).hexdigest()[:16]
        self.what = {"by": context.origin.who}
        self._person = person
        self._context = context
        self._before = context.resources().store.tombstones(self.fragments)

    def plan(self, _point: Point) -> Plan:
        return Plan("the access request", 1, "document")

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        made_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        document: dict[str, Any] = {"format": FORMAT, "made_at": made_at}
        for name, value in self._parts():
            document[name] = value
            progress.counts[name] = len(value) if isinstance(value, list) else 1
            yield {}
        self._context.deliver(canonical.encode(document) + b"\n", self.fragments)
        if self._context.resources().store.tombstones(self.fragments) != self._before:
            self._context.downloads.erase(self.fragments)
            raise StoreError("the person was erased meanwhile")
        progress.done = 1
        yield {}

    def _parts(self) -> Iterator[Part]:
        context, person, resources = self._context, self._person, self._context.resources()
        reader, hashed = context.reader, resources.blind_index.identifier
        links, history = Links(resources.store, reader), History(resources.store, reader.shown_name)
        yield from access_parts(reader, links, history, person, hashed)
        timelines = resources.store.timelines(self.fragments)
        yield (
            "timelines",
            [
                {"fragment": fragment, **entry_document(key.activity, entry)}
                for fragment, pages in sorted(timelines.items())
                for key, page in sorted(pages.items())
                for entry in read_page(page).entries()
            ],
        )
        log = context.households()
        keys = {str(hashed(Identifier.parse(each))) for each in self.fragments}
        entries = [each for household in log.of(keys) for each in log.read(household) if each.key in keys]
        yield "households", [each._asdict() for each in entries]
        names = {name for each in person.members for name in each.state.names()}
        search, letters = context.dead_letter_search(), resources.dead_letters
        found = list(search.find(letters.scan(), self.fragments, names))
        yield dead_letter_part(found, letters, resources.sealer.open)


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


def the_person(reader: ProfileReader, identifier: Identifier) -> Person | None:
    """The one person of an identifier. Raises QueryError where several share it, DamagedStateError."""
    found = reader.owning(reader.stored_forms(identifier))
    if found.sharing:
        raise QueryError("several profiles share the identifier: name the person by one of their own")
    if found.unreadable:
        raise DamagedStateError("a stored fragment is damaged; restore it from a backup")
    return found.persons[0] if found.persons else None


def _prepare(parameters: AccessParameters, context: JobContext) -> AccessRequest | None:
    person = the_person(context.reader, given_identifier(parameters.identifier))
    return None if person is None else AccessRequest(person, context)


ACCESS = JobType(
    "collects all that is stored of a person",
    "idgraph access-request",
    AccessParameters,
    _prepare,
    request="POST /v1/access-requests",
    scope=Scope.PRIVACY,
)
