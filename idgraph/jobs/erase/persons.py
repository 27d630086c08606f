"""The erasure of named persons: a preview, the job, and its receipt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from idgraph.jobs.erase.erasure import Erased, ErasureJob
from idgraph.jobs.erase.receipt import complete_from, receipt
from idgraph.jobs.kind import JobContext
from idgraph.model import canonical, paths
from idgraph.model.callers import Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import DamagedStateError, KeyProviderError, ProfileIndexError, QueryError
from idgraph.model.identifiers import Identifier, given_identifier
from idgraph.model.jobs import JobType
from idgraph.model.queries import Exists, Query
from idgraph.model.tombstones import NO_EPOCH
from merge.identity.components import Person
from profile_service.reader import ProfileReader

SHORTEST_VALUE = 3
"""Characters of a value that is looked for in paths: shorter ones stand there by chance."""


class EraseParameters(StrictDocument):
    """Persons, each by one identifier."""

    identifiers: list[Annotated[str, Field(max_length=4096)]]


class PersonErasure:
    """The preview of an erasure (`found`), its job, and its receipt."""

    def __init__(self, context: JobContext, ids: Iterable[str], asked: Mapping[str, str]) -> None:
        """`ids` are the persons' fragments; `asked` are stored forms of the given identifiers, each with its text."""
        reader, erasure = context.reader, context.erasure()
        self._context = context
        self._store = context.resources().store
        self._index = context.resources().index
        self._erasure = erasure
        self._asked = asked
        self._cut_short = erasure.cut_short({*asked, *ids})
        self.ids = sorted({*ids, *self._cut_short})
        self.named = sorted({*self.ids, *asked})
        """Events in progress and dead letters can make a fragment of each given name."""
        self.found = erasure.preview(self.named, asked)
        persons = reader.owning(self.ids).persons if self.ids else ()
        elsewhere = reader.elsewhere(persons, asked).items()
        self.elsewhere = {name: carried for name, carried in elsewhere if name not in self.named}
        """Fragments of other profiles that stay, each with the persons' identifiers that its events showed."""
        self._made_of_values = self._paths_of_values(reader, persons)
        self.paths_to_redact: list[str] = []
        """Attribute paths that are made of the persons' values, and that nobody has any more; once the job has ended."""
        self.receipt: dict[str, Any] = {}
        """The receipt of the job, once it has ended."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there to erase."""
        return not self.ids and not any(self.found.counts._replace(possible_dead_letters=0))

    def was_erased(self) -> bool:
        """Whether events of a given name are refused already."""
        return any(each.until > NO_EPOCH for each in self._store.tombstones(self.named).values())

    def job(self) -> ErasureJob:
        """The job, to be run once. The context keeps its receipt before the job ends."""
        moment, context = datetime.now(UTC), self._context
        until = int((moment.timestamp() + context.plan.flow.max_future_skew_seconds) * 1000)
        asked, names = set(self._asked.values()), self._erasure.names

        def erase() -> Erased:
            done = Erased()
            if self._store.unfinished():
                # A killed run may have reached some of a person's fragments, and nothing leads to the others
                # any more.
                done = self._erasure.again()
            rest = self._erasure.erase(self.named, until, self._asked)
            erased = done.plus(rest) if self._cut_short else rest
            with suppress(ProfileIndexError):
                self.paths_to_redact = [
                    path for path in self._made_of_values if not self._index.count(Query((Exists(path),)))
                ]
            cut_short = bool(self._cut_short)
            self.receipt = receipt(
                moment,
                context.origin,
                until,
                self.named,
                asked,
                names,
                erased,
                cut_short,
                context.backup_days,
                context.sandboxes,
            )
            context.keep(self.receipt, is_durable=True)
            context.deliver(canonical.encode(self.paths_to_redact), ())
            return erased

        return ErasureJob("erase", self.named, names, erase)

    def _paths_of_values(self, reader: ProfileReader, persons: Iterable[Person]) -> list[str]:
        """Known paths with a key that is one of the persons' values: an identifier, or the value of an
        attribute."""
        values = {text.partition(":")[2] for text in self._asked.values()}
        # Without keys, protected values cannot be compared; the erasure does not wait for them.
        with suppress(KeyProviderError, DamagedStateError):
            for person in persons:
                for member in person.members:
                    values.update(
                        Identifier.parse(name).value for name in (member.stored.id, *member.state.names())
                    )
                    alone = reader.profile_of(Person(member.stored.id, (member,), ()), reveal=True)
                    values.update(str(each) for leaf in alone.leaves for each in _elements(leaf.value))
        wanted = {each.strip().casefold() for each in values if len(each.strip()) >= SHORTEST_VALUE}
        return [
            path
            for path in reader.types()
            if not wanted.isdisjoint(key.strip().casefold() for key in paths.split(path))
        ]


def _elements(value: Any) -> list[Any]:
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, str | int | float) and not isinstance(each, bool)]


class NamedPersons(NamedTuple):
    """The fragments of the persons of some identifiers, and the identifiers' stored forms, each with its
    text. Also texts of identifiers that several profiles share, with the number of these."""

    ids: set[str]
    asked: dict[str, str]
    shared: dict[str, int]


def named_persons(reader: ProfileReader, identifiers: Iterable[str]) -> NamedPersons:
    """The persons of these identifiers. Raises QueryError for a text that is no identifier."""
    named = NamedPersons(set(), {}, {})
    for text in identifiers:
        forms = reader.stored_forms(given_identifier(text))
        named.asked.update(dict.fromkeys(forms, text))
        found = reader.owning(forms)
        if found.sharing:
            named.shared[text] = len(found.sharing)
        named.ids.update(member.stored.id for person in found.persons for member in person.members)
        # Their persons are unknown; they carry the identifier.
        named.ids.update(found.unreadable)
    return named


def _found(parameters: EraseParameters, context: JobContext) -> PersonErasure | None:
    """None where nothing is stored. Raises QueryError where several profiles share an identifier."""
    ids, asked, shared = named_persons(context.reader, parameters.identifiers)
    if shared:
        raise QueryError("several profiles share an identifier: name each person by one of their own")
    erasure = PersonErasure(context, ids, asked)
    return None if erasure.is_empty else erasure


def _prepare(parameters: EraseParameters, context: JobContext) -> ErasureJob | None:
    found = _found(parameters, context)
    return None if found is None else found.job()


def _preview(parameters: EraseParameters, context: JobContext) -> Mapping[str, Any] | None:
    """The numbers that it would remove, by place, and the day from which an erasure of today holds in backups
    too."""
    found = _found(parameters, context)
    if found is None:
        return None
    counts = found.found.counts._asdict() | {"fragments_elsewhere": len(found.elsewhere)}
    return {"counts": counts, "complete_from": complete_from(datetime.now(UTC), context.backup_days)}


ERASE = JobType(
    "erases persons for good",
    "idgraph erase",
    EraseParameters,
    _prepare,
    request="POST /v1/erasures",
    scope=Scope.PRIVACY,
    preview=_preview,
)
