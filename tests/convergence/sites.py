"""Acts of operators on a store with its companions, and its visible state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.jobs.erase.erasure import Erasure
from idgraph.jobs.reencrypt.stored_sealing import PAGE, StoredSealing
from idgraph.model import canonical
from idgraph.model.behaviour import ActivityDocument
from idgraph.model.dead_letters import FRAGMENT
from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexRules
from idgraph.model.jobs import Progress
from idgraph.model.pins import PinRecord
from idgraph.projection.behaviour import shown_timeline
from idgraph.projection.parts import Tasks
from idgraph.projection.projection import Projection
from ingestion.spark.workers import WorkerPlan
from merge.identity.resolve import Decision
from profile_service.links import Links
from profile_service.reader import ProfileReader
from tests.convergence.adapters import provider
from tests.convergence.events import IDENTIFIERS, PERSONS
from tests.convergence.flows import A_FEW, AT_ONCE, FlowSite
from tests.projecting import Shuffled, sweep
from tests.replaying import replay
from transforms.privacy.protected_names import TombstoneNames
from transforms.privacy.sealing import DataKeys


class Site(FlowSite):
    """All of idgraph that has to do with one store."""

    def erasure(self, version: int) -> Erasure:
        """As `idgraph erase` makes it."""
        return Erasure(
            self.resources(self.operator_keys),
            self._tombstones,
            TombstoneNames(provider()),
            lambda: DeadLetterSearch(
                self._sources, self._compiled(version).snapshot, self._blind_index, self._sealer.open
            ),
            lambda: self._compiled(version).attributes.index_rules,
        )

    def seal(self, version: int, page: int = PAGE, is_cut_short: bool = False) -> None:
        """As `idgraph seal` does, or only its first page."""
        sealing = StoredSealing(self.resources(self.operator_keys), self._compiled(version), AT_ONCE)
        for _ in sealing.run(Progress(), page):
            if is_cut_short:
                return
        if not self.faults.index_away:
            sealing.finish()

    def replay(self, version: int) -> None:
        """As `idgraph dead-letters replay --all` does."""
        plan = WorkerPlan(A_FEW, self._sources, "", lambda _: self.resources(self.operator_keys))
        replay(
            [*self.dead_letters.scan()],
            plan,
            self.resources(self.operator_keys),
            self._compiled(version).snapshot,
            self._sealer.open,
            lambda _: None,
        )

    def project(self, version: int, is_late: bool = False) -> None:
        """As a flow does beside its batches, in tasks, or another process, which `is_late` and hears of each version once."""

        def projection(tasks: Tasks | None = None) -> Projection:
            def rules() -> IndexRules:
                return self._compiled(self._heard[is_late]).attributes.index_rules

            return Projection(self.store, self.index, rules, tasks=tasks)

        if is_late not in self._projections:
            self._projections[is_late] = projection(
                None if is_late else Shuffled(self.store, projection, Random(version))
            )
        self._heard[is_late] = max(version, self._heard[is_late])
        self._projections[is_late].sweep()

    def come_to_rest(self, version: int) -> None:
        """A flow starts and ends; all servers are there."""
        if self.store.unfinished():
            self.erasure(version).again()
        self.seal(version)
        sweep(self.store, self.index, self._compiled(version).attributes.index_rules)

    def states(self) -> dict[str, bytes]:
        """What is stored, by id."""
        return {each.id: each.state for each in self.store.scan(limit=1000)}

    def timelines(self, activities: Sequence[ActivityDocument]) -> dict[str, Any]:
        """What shows of the stored timelines, by id of the fragment: expired pages may be there."""
        return {
            name: {
                each.name: list(
                    shown_timeline(
                        each, [(key.day, page) for key, page in pages.items() if key.activity == each.name]
                    ).entries
                )
                for each in activities
            }
            for name, pages in self.store.timelines([*self.store.ids()]).items()
        }

    def export(self, version: int, reveal: bool) -> bytes:
        """What `idgraph export --provenance` writes, by a process of its own."""
        read = self._reader(version).scan(reveal)
        return b"\n".join(canonical.encode(profile.canonical(True)) for profile in read)

    def shown(self, version: int) -> dict[str, dict[str, Any]]:
        """What the profiles of persons show, to who may see all."""
        return {self._person(each.id): each.attributes() for each in self._reader(version).scan(reveal=True)}

    def pin(self, version: int, pair: Sequence[Identifier], decision: Decision, at_ms: int) -> None:
        """As `idgraph links` does, of identifiers that are there."""
        links = Links(self.store, self._reader(version))
        one, other = map(links.stored, pair)
        if one and other:
            links.keep(links.decide([(one, other, decision)], at_ms, "ann", "asked"))

    def pins(self) -> list[PinRecord]:
        """All decisions, on identifiers in the clear."""
        return [
            each._replace(low=str(self.in_the_clear(each.low)), high=str(self.in_the_clear(each.high)))
            for each in self.store.pins()
        ]

    def persons(self, version: int) -> set[frozenset[Identifier]]:
        """The identifiers of each profile, in the clear."""
        return {
            frozenset(self.in_the_clear(str(each)) for each in profile.identifiers)
            for profile in self._reader(version).scan()
        }

    def stored_by(self, version: int) -> Callable[[Identifier], Identifier]:
        """How identifiers are stored by policy."""
        name = self._reader(version).names.identifier
        return lambda each: Identifier.parse(name(str(each)))

    def in_the_clear(self, name: str) -> Identifier:
        """The identifier that a stored name is of."""
        return next(
            each for each in IDENTIFIERS if name in (str(each), str(self._blind_index.identifier(each)))
        )

    def dead_letter_owners(self) -> tuple[set[str], set[str]]:
        """The positions of records among the dead letters, and the persons of whose fragments there are changes."""
        found = [dead_letter.position for dead_letter in self.dead_letters.scan()]
        fragments = {each for each in found if each.startswith(FRAGMENT)}
        return set(found) - fragments, {self._person(each.removeprefix(FRAGMENT)) for each in fragments}

    def _person(self, fragment_id: str) -> str:
        return next(person for person in PERSONS if fragment_id in self.names([person]))

    def _reader(self, version: int) -> ProfileReader:
        return ProfileReader(
            self.store,
            self.index,
            DataKeys(provider(), self.key_store),
            self._blind_index,
            self._compiled(version).snapshot,
        )

    def with_keys_of(self, other: Site) -> Site:
        """This site, empty so far, with the data keys of another one."""
        self.key_store.put_absent(other.key_store.get(other.names()))
        return self
