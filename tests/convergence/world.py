"""The world of the machine of law 1: the sites, the published events, the metadata and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition

from idgraph.model.behaviour import ActivityDocument
from idgraph.model.events import RawRecord
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import FileSource
from merge.identity.rules import Rules
from tests.convergence.adapters import Adapters, memory, sqlite
from tests.convergence.events import (
    ACTIVITIES,
    AGREED,
    EXCEPTION,
    IDENTITY,
    LAST_ORDINAL,
    PERSONS,
    PLAIN,
    POLICIES_OF_SEALED,
    PROTECTABLE,
    SOURCES,
    TYPES,
    Declared,
    SpecForm,
    payloads,
    policies,
    scopes,
    snapshot,
    written,
)
from tests.convergence.expected import PATH, forms
from tests.convergence.ledger import Ledger, Pair
from tests.convergence.sites import Site
from tests.convergence.ways import Way, small_chunks
from tests.folders import in_memory
from tests.policies import small_bounds
from tests.retail import raw
from transforms.spec.mapping import CompiledSnapshot

persons = st.sampled_from([*PERSONS])
sources = st.sampled_from([*SOURCES])
ways = st.sampled_from([*Way])
there_are_dead_letters = precondition(lambda machine: machine.ledger.dead_letters or machine.ledger.changes)


class Taken:
    """The snapshot that a flow's workers have, with the specs of the one before. Older ones are made anew, as for a
    micro-batch that is retried."""

    def __init__(self, snapshots: Mapping[int, MetadataSnapshot]) -> None:
        self._snapshots = snapshots
        self._version = 0
        self._compiled = CompiledSnapshot(MetadataSnapshot(version=0))

    def __call__(self, version: int) -> CompiledSnapshot:
        newer = self._snapshots[version]
        if version < self._version:
            return CompiledSnapshot(newer)
        if version > self._version:
            self._version, self._compiled = version, CompiledSnapshot(newer, self._compiled)
        return self._compiled


class World(RuleBasedStateMachine):
    """What is done is done at each site, and noted in the ledger."""

    kinds: tuple[Callable[[Path], Adapters], ...] = (memory, sqlite)

    def __init__(self) -> None:
        super().__init__()
        self.ended = ExitStack()
        self.folder = Path(self.ended.enter_context(in_memory()))
        self.ended.enter_context(small_bounds(3))
        self.ended.enter_context(small_chunks())
        self.pool: list[RawRecord] = []
        self.said: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.age = 0
        self.decisions = 0
        self.is_plain = self.projects = False
        self.index_away = False
        self.attributes = dict.fromkeys([path for path in TYPES if path != EXCEPTION], Declared())
        self.specs = dict.fromkeys(SOURCES, SpecForm())
        self.activities: tuple[ActivityDocument, ...] = ACTIVITIES
        self.identity = 0, IDENTITY[0]
        """The identity rules and their version."""
        self.snapshots: dict[int, MetadataSnapshot] = {}
        self.unranked: dict[int, MetadataSnapshot] = {}
        """The same with sources ranked as they were at first."""
        self.compiled: dict[tuple[int, bool], CompiledSnapshot] = {}

    @initialize(
        first=st.lists(policies, min_size=3, max_size=3),
        counting=st.sampled_from([(), (), ("crm",)]),
        protects=st.booleans(),
        some=st.fixed_dictionaries({source: st.lists(payloads, min_size=5) for source in SOURCES}),
        plain=st.sampled_from(PLAIN),
        has_exception=st.booleans(),
        way=ways,
        modes=st.lists(scopes, min_size=2, max_size=2),
        is_plain=st.booleans(),
        retracting=st.sampled_from([(), ("shop",), SOURCES]),
        identity=st.sampled_from(IDENTITY),
        projects=st.booleans(),
    )
    def begin(
        self,
        first: list[str],
        counting: tuple[str, ...],
        protects: bool,
        some: dict[str, list[dict[str, Any]]],
        plain: str,
        has_exception: bool,
        way: Way,
        modes: list[str | None],
        is_plain: bool,
        retracting: tuple[str, ...],
        identity: IdentityRules,
        projects: bool,
    ) -> None:
        """Sources in `counting` do not order their events by time. Where protection changes there are no sets of
        values that it covers: at their bound they may lose another element (docs/adr/0014-policy-change.md).

        Where all `is_plain` the latest value holds and nothing is protected, as of most events: they stay bytes."""
        self.protects, self.is_plain = protects and not is_plain, is_plain
        self.ledger = Ledger(
            counting, lambda each: forms(each, Rules(self.snapshots[self.now].identity_rules))
        )
        self.sources = {
            name: FileSource(
                name=name, path=Path(name), ordinal_unit="sequence" if name in counting else "epoch_ms"
            )
            for name in SOURCES
        }
        self.sites = [
            Site(kind, self.folder / kind.__name__, self.sources, self._compiled, self._taken(number))
            for number, kind in enumerate(self.kinds)
        ]
        for path, policy in zip(("a", "a.b", "c"), first, strict=True):
            if self._may_have(path, policy) and not is_plain:
                self.attributes[path] = Declared(policy)
        self.specs = {
            source: SpecForm(scope=None if is_plain else scope, retracts=source in retracting)
            for source, scope in zip(SOURCES, modes, strict=True)
        }
        if not is_plain:
            self.attributes["p"] = Declared("latest", "searchable")
        if has_exception:
            self.attributes[EXCEPTION] = Declared()
        self.attributes[PATH] = Declared("latest" if is_plain else plain)
        self.identity, self.projects = (int(identity is not IDENTITY[0]), identity), projects
        self._save()
        for site in self.sites:
            site.way = way
        for source, theirs in some.items():
            self._deliver(self._published(source, theirs), 1, 8)

    @property
    def now(self) -> int:
        """The newest version of the metadata."""
        return len(self.snapshots)

    def _compiled(self, version: int, is_ranked: bool = True) -> CompiledSnapshot:
        if (version, is_ranked) not in self.compiled:
            # As a worker does: specs that did not change keep their compiled form.
            previous = self.compiled[max(self.compiled)] if self.compiled else None
            stated = (self.snapshots if is_ranked else self.unranked)[version]
            self.compiled[version, is_ranked] = CompiledSnapshot(stated, previous)
        return self.compiled[version, is_ranked]

    def _taken(self, number: int) -> Callable[[int], CompiledSnapshot]:
        """Flows of every other site never notice that sources are ranked again."""
        return Taken(self.unranked if number % 2 else self.snapshots)

    def _save(self) -> None:
        version = self.now + 1
        self.snapshots[version] = snapshot(
            version, self.specs, self.attributes, self.identity, self.activities
        )
        as_at_first = {path: each._replace(sources=SOURCES) for path, each in self.attributes.items()}
        self.unranked[version] = snapshot(version, self.specs, as_at_first, self.identity, self.activities)
        for source, form in self.specs.items():
            if form.broken:
                self.ledger.breaks(version, source)

    def _may_have(self, path: str, policy: str) -> bool:
        if self.protects and path in PROTECTABLE and policy == "union":
            return False
        return policy in POLICIES_OF_SEALED.get(self.attributes[path].encryption, (policy,))

    def _published(self, source: str, some: list[dict[str, Any]], back: int = 0) -> list[Pair]:
        """Events of this age, or of one that is long ago."""
        for payload in map(dict, some):
            if payload["ts"] <= LAST_ORDINAL:
                payload["ts"] += max(self.age - back, 0) * 10
            self._agree(source, payload)
            self.pool.append(raw(written(payload), len(self.pool), source))
        return [Pair(record, self.now) for record in self.pool[-len(some) :]]

    def _agree(self, source: str, payload: dict[str, Any]) -> None:
        """Of two contents of one event, bytes decide, which protection changes (docs/adr/0014-policy-change.md)."""
        event = (source, payload["id"], payload["ts"])
        said = {path: payload.pop(path) for path in AGREED if path in payload}
        payload |= self.said.setdefault(event, said)
        if "d" not in payload:
            payload.setdefault("u", "1")

    def _drawn(self, data: st.DataObject, most: int) -> list[Pair]:
        chosen = data.draw(st.lists(st.sampled_from(self.pool), min_size=1, max_size=most))
        return [Pair(record, self.now) for record in chosen]

    def _deliver(self, pairs: Sequence[Pair], first: int, second: int) -> None:
        self.ledger.take(pairs)
        for number, site in enumerate(self.sites):
            backwards = number % 2
            site.give(pairs[::-1] if backwards else pairs, second if backwards else first)
            if self.projects and not self.index_away:
                site.project(self.now)

    def _beside(self, site: Site, other: Callable[[], object], one: Callable[[], object]) -> None:
        site.faults.between = other
        one()
        site.faults.meet()
