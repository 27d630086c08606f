"""The machine of law 1: what may happen, in whatever order, and what must hold then. See the package."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexRules
from merge.identity.resolve import Decision
from merge.identity.rules import Rules
from tests.convergence.adapters import dynamodb, memory, sqlite
from tests.convergence.deliveries import Deliveries
from tests.convergence.differences import difference_of, reported_beside
from tests.convergence.edits import ActivityEdits, Edits
from tests.convergence.events import PERSONS
from tests.convergence.expected import (
    NOTHING,
    PATH,
    TREE,
    exact,
    expected,
    expected_persons,
    expected_tree,
    leaves,
)
from tests.convergence.ledger import person_of
from tests.convergence.operations import Operations
from tests.convergence.outages import Outages
from tests.convergence.rest import found, left_behind
from tests.convergence.sites import Site
from tests.folders import in_memory


class ConvergenceMachine(Edits, Deliveries, Outages, Operations):
    """At rest each site is in the state of one tidy delivery of what counts."""

    @rule()
    def compare(self) -> None:
        """What is held back is written first, and what was interrupted is done."""
        self._release()
        self._bring_the_index_back()
        self.ledger.finish()
        for site in self.sites:
            site.come_to_rest(self.now)
            left = left_behind(site, self._index_rules(), self.snapshots[self.now])
            assert not left, left
            records, owners = site.dead_letter_owners()
            assert records == self.ledger.dead_letters.keys()
            assert owners <= {person_of(pair.record) for pair in self.ledger.changes}
            tidy = self._tidy(site)
            assert site.states() == tidy.states(), reported_beside(site.states(), tidy.states())
            shown, expected_ones = site.timelines(self.activities), tidy.timelines(self.activities)
            assert shown == expected_ones, difference_of(shown, expected_ones)
            for reveal in (False, True):
                assert site.export(self.now, reveal) == tidy.export(self.now, reveal)
            self._compare_with_expected(site)
            newest = self._compiled(self.now).attributes.index_rules
            assert found(site, newest) == found(tidy, newest)

    def _compare_with_expected(self, site: Site) -> None:
        """The outcome by plain rules for the events that count, apart from the code that both sites run."""
        (stated,) = [each for each in self.snapshots[self.now].attributes if each.path == PATH]
        persons = site.persons(self.now)
        by_rules = {
            frozenset(site.in_the_clear(str(each)) for each in part)
            for part in expected_persons(
                self.ledger.pairs,
                self.snapshots,
                site.pins(),
                Rules(self.snapshots[self.now].identity_rules),
                site.stored_by(self.now),
            )
        }
        # A fragment names each profile, also where all of its events are taken back: its attributes stay.
        fragments = {Identifier.parse(person_of(pair.record)) for pair in self.ledger.pairs}
        named = {part for part in by_rules if not fragments.isdisjoint(part)}
        active = frozenset().union(*by_rules)
        if not self._is_a_hub_pinned(site):
            assert named <= persons, (named, persons)
            assert all(active.isdisjoint(part) for part in persons - named), (named, persons)
        shown = site.shown(self.now)
        for person in PERSONS:
            own = Identifier.parse(person)
            if any(own in part and len(fragments & part) > 1 for part in persons):
                continue
            profile = shown.get(person, {})
            value = expected(person, self.ledger.pairs, self.snapshots, stated)
            assert exact(profile.get(PATH, NOTHING)) == exact(value), (person, profile)
            tree = expected_tree(person, self.ledger.pairs, self.snapshots)
            found_tree = dict(leaves(profile.get(TREE, {}), (TREE,)))
            assert exact(found_tree) == exact(tree), (person, found_tree)

    def _is_a_hub_pinned(self, site: Site) -> bool:
        """Nothing is read behind a hub, so that a decision to join it joins less than plain rules say."""
        rules = Rules(self.snapshots[self.now].identity_rules)
        joined = (each for each in site.pins() if each.decision == Decision.ALWAYS)
        ends = (Identifier.parse(name) for each in joined for name in each[:2])
        return any(rules.hub_limit(each.type) is not None for each in ends)

    def _index_rules(self) -> list[IndexRules]:
        return [
            self._compiled(version, is_ranked).attributes.index_rules
            for version in range(self.now, 0, -1)
            for is_ranked in (True, False)
        ]

    def _tidy(self, site: Site) -> Site:
        """One delivery, in order, of what counts and nothing else, by the same keys."""
        with in_memory() as folder:
            tidy = Site(memory, Path(folder), self.sources, self._compiled).with_keys_of(site)
            tidy.give(sorted(self.ledger.pairs, key=lambda pair: (pair.record.position, pair.version)), 1000)
            tidy.store.add_pins(list(site.store.pins()))
            tidy.come_to_rest(self.now)
            tidy.dead_letters.close()
            return tidy

    def teardown(self) -> None:
        try:
            if self.snapshots:
                self.compare()
            if self.snapshots and self.ledger.changes:
                self._replay()
                self.compare()
        finally:
            for site in getattr(self, "sites", ()):
                site.close()
                site.dead_letters.close()
            self.ended.close()


class ActivityMachine(ActivityEdits, ConvergenceMachine):
    """With activities that are changed."""


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
