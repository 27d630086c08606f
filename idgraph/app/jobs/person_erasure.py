"""The erasure of named persons, as the command line and the profile service start it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from idgraph.app import wiring
from idgraph.app.settings.document import Settings
from idgraph.jobs.erase.erasure import Erased, Erasure, ErasureJob
from idgraph.jobs.erase.receipt import receipt
from idgraph.model import paths
from idgraph.model.errors import DamagedStateError, KeyProviderError, ProfileIndexError
from idgraph.model.identifiers import Identifier
from idgraph.model.jobs import Requester
from idgraph.model.queries import Exists, Query
from idgraph.model.tombstones import NO_EPOCH
from ingestion.spark.workers import WorkerResources
from merge.identity.persons import Person
from profile_service.reader import ProfileReader

SHORTEST_VALUE = 3
"""Characters of a value that is looked for in paths: shorter ones stand there by chance."""


class PersonErasure:
    """What an erasure would remove (`found`), the job that removes it, and its receipt."""

    def __init__(
        self,
        resources: WorkerResources,
        erasure: Erasure,
        reader: ProfileReader,
        ids: Iterable[str],
        asked: Mapping[str, str],
    ) -> None:
        """`ids` are the persons' fragments; `asked` are stored forms of the given identifiers, each with its text."""
        self._store = resources.store
        self._index = resources.index
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
        """Of the job, once it has ended."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there to erase."""
        return not self.ids and not any(self.found.counts._replace(possible_dead_letters=0))

    def was_erased(self) -> bool:
        """Whether events of a given name are refused already."""
        return any(each.until > NO_EPOCH for each in self._store.tombstones(self.named).values())

    def job(
        self,
        origin: Requester,
        settings: Settings,
        keep: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> ErasureJob:
        """The job, to be run once. `keep` gets its receipt before the job ends."""
        moment = datetime.now(UTC)
        until = int((moment.timestamp() + settings.flow.max_future_skew_seconds) * 1000)
        asked, names = set(self._asked.values()), self._erasure.names

        def erase() -> Erased:
            done = Erased()
            if self._store.unfinished():
                # What was killed may have reached some of a person's fragments, and nothing leads to the others any more.
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
                origin,
                until,
                self.named,
                asked,
                names,
                erased,
                cut_short,
                settings.keys.backup_days,
                wiring.sandbox_names(settings),
            )
            keep(self.receipt)
            return erased

        return ErasureJob("erase", self.named, names, erase)

    def _paths_of_values(self, reader: ProfileReader, persons: Iterable[Person]) -> list[str]:
        """Known paths with a key that is one of the persons' values: an identifier, or what an attribute has."""
        values = {text.partition(":")[2] for text in self._asked.values()}
        # Without keys, what is protected cannot be compared; the erasure does not wait for them.
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
