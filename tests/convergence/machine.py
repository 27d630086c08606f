"""The machine of law 1: what may happen, in whatever order. See the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ingestion.configuration import FileSource
from model.errors import ProfileIndexError, StoreError
from model.events import RawRecord
from model.index_rules import IndexRules
from model.snapshots import MetadataSnapshot
from tests.convergence.events import (
    AGREED,
    LAST_ORDINAL,
    NAMES,
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
    snapshot,
)
from tests.convergence.expected import NOTHING, PATH, exact, expected
from tests.convergence.ledger import Ledger, Pair
from tests.convergence.rest import found, left_behind
from tests.convergence.sites import Adapters, Held, Site, dynamodb, memory, sqlite
from tests.convergence.ways import Way
from tests.folders import in_memory
from tests.policies import small_blocks, small_bounds
from tests.retail import raw
from transforms.compiled import CompiledSnapshot

persons = st.sampled_from([*PERSONS])
sources = st.sampled_from([*SOURCES])
at_once = st.sampled_from([1, 2, 4, 8])
ways = st.sampled_from([*Way])


class ConvergenceMachine(RuleBasedStateMachine):
    """What is done is done at each site, and told to the ledger."""

    kinds: tuple[Callable[[Path], Adapters], ...] = (memory, sqlite)

    def __init__(self) -> None:
        super().__init__()
        self.ended = ExitStack()
        self.folder = Path(self.ended.enter_context(in_memory()))
        self.ended.enter_context(small_bounds(3))
        self.ended.enter_context(small_blocks())
        self.pool: list[RawRecord] = []
        self.said: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.age = 0
        self.index_away = False
        self.attributes = dict.fromkeys(TYPES, Declared())
        self.specs = dict.fromkeys(SOURCES, SpecForm())
        self.snapshots: dict[int, MetadataSnapshot] = {}
        self.compiled: dict[int, CompiledSnapshot] = {}

    @initialize(
        first=st.lists(policies, min_size=3, max_size=3),
        counting=st.sampled_from([(), (), ("state",)]),
        protects=st.booleans(),
        some=st.lists(payloads, min_size=5),
        plain=st.sampled_from(PLAIN),
        way=ways,
    )
    def begin(
        self,
        first: list[str],
        counting: tuple[str, ...],
        protects: bool,
        some: list[dict[str, Any]],
        plain: str,
        way: Way,
    ) -> None:
        """Sources in `counting` do not order their events by time. Where protection changes there are no sets of
        values that it covers: at their bound they may lose another element (docs/adr/0014-policy-change.md)."""
        self.protects = protects
        self.ledger = Ledger(counting)
        self.sources = {
            name: FileSource(
                name=name, path=Path(name), ordinal_unit="sequence" if name in counting else "epoch_ms"
            )
            for name in SOURCES
        }
        self.sites = [
            Site(kind, self.folder / kind.__name__, self.sources, self._compiled) for kind in self.kinds
        ]
        for path, policy in zip(("a", "a.b", "c"), first, strict=True):
            if self._may_have(path, policy):
                self.attributes[path] = Declared(policy)
        self.attributes["p"] = Declared("latest", "searchable")
        self.attributes[PATH] = Declared(plain)
        self._save()
        self.flow_by(way)
        self._deliver(self._published("delta", some), 1, 8)

    @property
    def now(self) -> int:
        """The newest version of the metadata."""
        return len(self.snapshots)

    def _compiled(self, version: int) -> CompiledSnapshot:
        if version not in self.compiled:
            self.compiled[version] = CompiledSnapshot(self.snapshots[version])
        return self.compiled[version]

    def _save(self) -> None:
        version = self.now + 1
        self.snapshots[version] = snapshot(version, self.specs, self.attributes)
        for source, form in self.specs.items():
            if form.broken:
                self.ledger.breaks(version, source)

    @rule(path=st.sampled_from(["a", "a.b", "c", "p"]), policy=policies)
    def change_a_policy(self, path: str, policy: str) -> None:
        if self._may_have(path, policy):
            self.attributes[path] = Declared(policy, self.attributes[path].encryption)
            self._save()

    @rule(policy=st.sampled_from(PLAIN))
    def change_a_plain_policy(self, policy: str) -> None:
        self.attributes[PATH] = Declared(policy)
        self._save()

    def _may_have(self, path: str, policy: str) -> bool:
        if self.protects and path in PROTECTABLE and policy == "union":
            return False
        return policy in POLICIES_OF_SEALED.get(self.attributes[path].encryption, (policy,))

    @rule(path=st.sampled_from(PROTECTABLE), encryption=st.sampled_from(["protected", "searchable"]))
    def protect(self, path: str, encryption: str) -> None:
        """Never taken back: what is sealed then stays so, which no later delivery can know."""
        if not self.protects:
            return
        policy = self.attributes[path].policy
        kept = policy if policy in POLICIES_OF_SEALED[encryption] else "latest"
        self.attributes[path] = Declared(kept, encryption)
        self._save()

    @rule(path=st.sampled_from(NAMES))
    def protect_names(self, path: str) -> None:
        self.attributes[path] = Declared("latest", "protected")
        self._save()

    @rule(
        source=sources,
        nested=st.booleans(),
        priority=st.integers(0, 1),
        scope=st.sampled_from(["", "a", "c", "n"]),
        broken=st.sampled_from([False, False, True]),
    )
    def edit_a_spec(self, source: str, nested: bool, priority: int, scope: str, broken: bool) -> None:
        version = self.specs[source].version + 1
        self.specs[source] = SpecForm(version, nested, priority, scope, broken)
        self._save()

    @rule(way=ways)
    def flow_by(self, way: Way) -> None:
        """A flow goes another way with its next batch, and with what is mapped already."""
        for site in self.sites:
            site.way = way

    @rule(source=sources, some=st.lists(payloads, min_size=3, max_size=10), back=st.integers(0, 2))
    def publish_some(self, source: str, some: list[dict[str, Any]], back: int) -> None:
        self._deliver(self._published(source, some, back), 1, 8)

    def _published(self, source: str, some: list[dict[str, Any]], back: int = 0) -> list[Pair]:
        """Events of this age, or of one that is long ago."""
        for payload in map(dict, some):
            if payload["ts"] <= LAST_ORDINAL:
                payload["ts"] += max(self.age - back, 0) * 10
            self._agree(source, payload)
            self.pool.append(raw(payload, len(self.pool), source))
        return [Pair(record, self.now) for record in self.pool[-len(some) :]]

    def _agree(self, source: str, payload: dict[str, Any]) -> None:
        """Of two contents of one event, bytes decide, which protection changes (docs/adr/0014-policy-change.md)."""
        event = (source, payload["id"], payload["ts"])
        said = {path: payload.pop(path) for path in AGREED if path in payload}
        payload |= self.said.setdefault(event, said)
        if "d" in payload:
            payload["d"] = payload["u"] + payload["d"]

    @rule(data=st.data(), first=at_once, second=at_once)
    def deliver_again(self, data: st.DataObject, first: int, second: int) -> None:
        """Some events, maybe under a newer snapshot than before."""
        self._deliver(self._drawn(data, 8), first, second)

    def _drawn(self, data: st.DataObject, most: int) -> list[Pair]:
        chosen = data.draw(st.lists(st.sampled_from(self.pool), min_size=1, max_size=most))
        return [Pair(record, self.now) for record in chosen]

    def _deliver(self, pairs: Sequence[Pair], first: int, second: int) -> None:
        self.ledger.take(pairs)
        for number, site in enumerate(self.sites):
            backwards = number % 2
            site.give(pairs[::-1] if backwards else pairs, second if backwards else first)

    @rule(data=st.data())
    def hold_back(self, data: st.DataObject) -> None:
        """A task maps events, and is slow to commit."""
        pairs = self._drawn(data, 5)
        on_their_way = self.ledger.mapped(pairs)
        for site in self.sites:
            outputs = site.map(pairs)
            if on_their_way:
                site.held.append(Held(on_their_way, outputs))

    @rule()
    def release(self) -> None:
        for held in self.sites[0].held:
            self.ledger.take(held.pairs)
        for site in self.sites:
            site.release()

    @rule(data=st.data())
    def race(self, data: st.DataObject) -> None:
        """Two committers, of which one writes between the other's read and write."""
        one, other = self._drawn(data, 4), self._drawn(data, 4)
        self.ledger.take(one + other)
        for site in self.sites:
            self._beside(site, partial(site.give, other, 2), partial(site.give, one, 4))

    def _beside(self, site: Site, other: Callable[[], object], one: Callable[[], object]) -> None:
        site.between = other
        one()
        site.meet()

    @rule(data=st.data())
    def crash_and_do_it_again(self, data: st.DataObject) -> None:
        """A batch is cut short: half of its fragments are written. Then all of it is given again, under the snapshot
        that it had."""
        if not self.ledger.pairs:
            return
        pairs = data.draw(st.lists(st.sampled_from([*self.ledger.pairs]), min_size=1, max_size=8))
        for site in self.sites:
            site.commit(Held(pairs, site.map(pairs)), share=2)
            site.give(pairs, 8)

    @rule()
    def restart(self) -> None:
        """Processes end; the next flow goes on with what was cut short."""
        self.the_index_comes_back()
        self.ledger.finish()
        for site in self.sites:
            if site.is_durable:
                site.close()
                site.open()
            site.erasure(self.now).again()

    @rule()
    def the_index_goes_away(self) -> None:
        self.index_away = True
        for site in self.sites:
            site.index_away = True

    @rule()
    def the_index_comes_back(self) -> None:
        self.index_away = False
        for site in self.sites:
            site.index_away = False

    @rule(person=persons, is_cut_short=st.booleans())
    def erase(self, person: str, is_cut_short: bool) -> None:
        """Cut short before the store is reached, it is given again."""
        until = self._grown_up()
        self.ledger.erase(person, until, not self.index_away)
        for site in self.sites:
            site.keys_away = is_cut_short
            self._erase(site, person, until)
            site.keys_away = False
            self._erase(site, person, until)

    @rule(person=persons, data=st.data())
    def erase_beside_a_commit(self, person: str, data: st.DataObject) -> None:
        pairs = self._drawn(data, 4)
        until = self._grown_up()
        self.ledger.take(pairs)
        self.ledger.erase(person, until, not self.index_away)
        for site in self.sites:
            self._beside(
                site,
                partial(self._erase, site, person, until),
                partial(site.give, pairs, 4),
            )

    @rule(person=persons, source=sources, some=st.lists(payloads, min_size=2, max_size=6))
    def erase_between_two_tasks(self, person: str, source: str, some: list[dict[str, Any]]) -> None:
        """Of one batch: the second maps what is published later, and what both left is written together."""
        theirs = [payload | {"u": person} for payload in some]
        before = self._published(source, theirs[::2])
        on_their_way, until = self.ledger.mapped(before), self._grown_up()
        self.ledger.erase(person, until, not self.index_away)
        after = self._published(source, theirs[1::2])
        self.ledger.take([*on_their_way, *after])
        for site in self.sites:
            outputs = site.map(before)
            self._erase(site, person, until)
            site.commit(Held([*on_their_way, *after], [*outputs, *site.map(after)]))

    def _grown_up(self) -> int:
        """Everything that was accepted so far is of at most this ordinal, and what is published next is later."""
        until = self.age * 10 + LAST_ORDINAL
        self.age += 1
        return until

    def _erase(self, site: Site, person: str, until: int) -> None:
        name = f"u:{person}"
        try:
            site.erasure(self.now).erase([name], until, [name])
        except StoreError:
            assert site.keys_away
        except ProfileIndexError:
            assert site.index_away, "what is left is done by the next flow"

    @rule(person=persons)
    def lift(self, person: str) -> None:
        """What comes from now on counts, and what was on its way is released."""
        self.ledger.lift(person)
        for site in self.sites:
            site.erasure(self.now).lift([f"u:{person}"])

    @rule()
    def replay_letters(self) -> None:
        self.ledger.replay(self.now)
        for site in self.sites:
            site.replay(self.now)

    @rule(page=st.integers(1, 3), is_cut_short=st.booleans())
    def seal(self, page: int, is_cut_short: bool) -> None:
        for site in self.sites:
            site.seal(self.now, page, is_cut_short)

    @rule(data=st.data(), page=st.integers(1, 3))
    def seal_beside_a_commit(self, data: st.DataObject, page: int) -> None:
        pairs = self._drawn(data, 4)
        self.ledger.take(pairs)
        for site in self.sites:
            self._beside(
                site,
                partial(site.give, pairs, 2),
                partial(site.seal, self.now, page),
            )

    @rule()
    def compare(self) -> None:
        """What is held back is written first, and what was cut short is done."""
        self.release()
        self.the_index_comes_back()
        self.ledger.finish()
        for site in self.sites:
            site.come_to_rest(self.now)
            assert left_behind(site, self._index_rules()) == []
            assert {letter.position for letter in site.letters.scan()} == self.ledger.letters.keys()
            tidy = self._tidy(site)
            assert site.states() == tidy.states(), site.told_beside(tidy)
            for reveal in (False, True):
                assert site.export(self.now, reveal) == tidy.export(self.now, reveal)
            self._compare_with_expected(site)
            newest = self._compiled(self.now).attributes.index_rules
            assert found(site, newest) == found(tidy, newest)

    def _compare_with_expected(self, site: Site) -> None:
        """What plain rules tell of the events that count, apart from the code that both sites run."""
        policy, shown = self.attributes[PATH].policy, site.shown(self.now, PATH)
        for person in PERSONS:
            value = expected(person, self.ledger.pairs, self.snapshots, policy)
            assert exact(shown.get(person, NOTHING)) == exact(value), (person, shown)

    def _index_rules(self) -> list[IndexRules]:
        return [self._compiled(version).attributes.index_rules for version in range(self.now, 0, -1)]

    def _tidy(self, site: Site) -> Site:
        """One delivery, in order, of what counts and nothing else, by the same keys."""
        with in_memory() as folder:
            tidy = Site(memory, Path(folder), self.sources, self._compiled).with_keys_of(site)
            tidy.give(sorted(self.ledger.pairs, key=lambda pair: (pair.record.position, pair.version)), 1000)
            tidy.come_to_rest(self.now)
            tidy.letters.close()
            return tidy

    def teardown(self) -> None:
        try:
            if self.snapshots:
                self.compare()
        finally:
            for site in getattr(self, "sites", ()):
                site.close()
                site.letters.close()
            self.ended.close()


class DynamoMachine(ConvergenceMachine):
    """The same, in DynamoDB Local as well."""

    kinds = (memory, sqlite, dynamodb)


def run(
    machine: type[ConvergenceMachine],
    examples: int,
    steps: int,
    number: int | None = None,
    shrinks: bool = True,
) -> None:
    """Raises what the machine found; `number` makes a run that can be made again."""
    # Not to explain what was found: it traces every line.
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    run_state_machine_as_test(
        machine if number is None else seed(number)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=phases,
            report_multiple_bugs=False,
        ),
    )
