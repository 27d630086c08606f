"""Servers that are away in the middle of something, and a store that refuses a fragment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from idgraph.model.errors import IdgraphError
from ingestion.spark.worker_errors import may_pass_again
from tests.convergence.events import payloads
from tests.convergence.faults import Answer
from tests.convergence.flows import A_FEW, PATIENCE, WITHOUT_KEYS
from tests.convergence.ledger import Pair
from tests.convergence.protected import needs_a_key
from tests.convergence.sites import Site
from tests.convergence.world import World, persons, sources, there_are_dead_letters

_answers = [*[Answer.GIVEN] * 3, *Answer]
_few = st.lists(st.sampled_from(_answers), max_size=8)
_many = st.lists(st.sampled_from(_answers), min_size=5, max_size=40)
_some = st.lists(payloads, min_size=2, max_size=6)
_ALWAYS = 10**9


class Outages(World):
    """Whatever fails is done again, by the flow or by the operator, until it passes."""

    @rule(source=sources, some=_some, store=_many, keys=_few, service=st.integers(0, 6))
    def deliver_while_servers_are_away(
        self, source: str, some: list[dict[str, Any]], store: list[Answer], keys: list[Answer], service: int
    ) -> None:
        pairs = self._published(source, some)
        self.ledger.take(pairs)
        for site in self.sites:
            site.begin_processes()
            self._begin(site, store, keys, service)
            site.give(pairs, 4)
            site.faults.end()

    @rule(
        operation=st.sampled_from([Site.seal, Site.replay]),
        store=_few,
        keys=_few,
        service=st.integers(0, 6),
    )
    def operate_while_servers_are_away(
        self, operation: Callable[[Site, int], None], store: list[Answer], keys: list[Answer], service: int
    ) -> None:
        if operation is Site.replay:
            self.ledger.replay(self.now)
            # What cannot be opened then stays a dead letter: another replay than this one finds the service there.
            service = 0
        for site in self.sites:
            self._begin(site, store, keys, service)
            _until_it_passes(partial(operation, site, self.now))
            site.faults.end()

    def _begin(self, site: Site, store: Sequence[Answer], keys: Sequence[Answer], service: int) -> None:
        site.faults.store_calls.answers[:] = store
        site.faults.key_calls.answers[:] = keys
        site.faults.service_calls = service

    @rule(source=sources, some=_some)
    def deliver_without_keys(self, source: str, some: list[dict[str, Any]]) -> None:
        """By a flow that sets aside what cannot be sealed."""
        pairs = self._published(source, some)
        self.ledger.take_without_keys(pairs, self._needs_a_key)
        for site in self.sites:
            site.begin_processes()
            site.flow, site.faults.service_calls = WITHOUT_KEYS, _ALWAYS
            # One by one: a value that loses against another one of its chunk needs no key.
            site.give(pairs, 1)
            site.faults.end()
            site.flow = A_FEW

    def _needs_a_key(self, pair: Pair) -> bool:
        return needs_a_key(pair.record, self.snapshots[pair.version])

    @precondition(lambda machine: not machine.ledger.is_unfinished)
    @rule(person=persons, source=sources, some=_some, is_named=st.booleans())
    def deliver_what_the_store_refuses(
        self, person: str, source: str, some: list[dict[str, Any]], is_named: bool
    ) -> None:
        """One fragment; the others of its batch are written."""
        pairs = self._published(source, some)
        self.ledger.take(pairs, refused=person)
        for site in self.sites:
            self._refuse(site, person, is_named)
            site.give(pairs, 4)
            site.faults.end()

    @there_are_dead_letters
    @precondition(lambda machine: not machine.ledger.is_unfinished)
    @rule(person=persons, is_named=st.booleans())
    def replay_what_the_store_refuses(self, person: str, is_named: bool) -> None:
        """Before the cause is repaired."""
        self.ledger.replay(self.now, refused=person)
        for site in self.sites:
            self._refuse(site, person, is_named)
            site.replay(self.now)
            site.faults.end()

    def _refuse(self, site: Site, person: str, is_named: bool) -> None:
        site.faults.refused = frozenset(site.names([person]))
        site.faults.names_refused = is_named


def _until_it_passes(work: Callable[[], None]) -> None:
    for _ in range(PATIENCE):
        try:
            work()
            return
        except IdgraphError as error:
            if not may_pass_again(error):
                raise
    raise AssertionError("never passes")
