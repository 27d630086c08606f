"""Acts of operators beside flows: erase and cancel, replay, seal, start again."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from idgraph.model.errors import ProfileIndexError, StoreError
from idgraph.model.identifiers import Identifier
from merge.identity.resolve import Decision
from tests.convergence.events import CUSTOMERS, IDENTIFIERS, LAST_ORDINAL, payloads
from tests.convergence.expected import carried_by, is_anything_taken_back
from tests.convergence.flows import Held
from tests.convergence.sites import Site
from tests.convergence.world import World, persons, sources, there_are_dead_letters

_there_is_much = precondition(lambda machine: len(machine.ledger.pairs) > MUCH and not machine.ledger.changes)
"""So that histories do not end empty more often than not. Of changes that the store refused it depends on the batch what
they have in common with the person."""
MUCH = 8
customers = st.sampled_from(CUSTOMERS)


class Operations(World):
    """Each is done at each site."""

    @rule()
    def restart(self) -> None:
        """Processes end; the next flow continues with what was interrupted."""
        self._bring_the_index_back()
        self.ledger.finish()
        for site in self.sites:
            if site.is_durable:
                site.close()
                site.open()
            site.erasure(self.now).again()

    @precondition(lambda machine: not machine.index_away)
    @rule()
    def the_index_goes_away(self) -> None:
        self.index_away = True
        for site in self.sites:
            site.faults.index_away = True

    @precondition(lambda machine: machine.index_away)
    @rule()
    def the_index_comes_back(self) -> None:
        self._bring_the_index_back()

    def _bring_the_index_back(self) -> None:
        self.index_away = False
        for site in self.sites:
            site.faults.index_away = False

    @_there_is_much
    @rule(person=persons, is_cut_short=st.booleans())
    def erase(self, person: str, is_cut_short: bool) -> None:
        """Cut short before the store is reached, it is retried."""
        until, carried = self._grown_up(), self._carried(person)
        self.ledger.erase(person, until, not self.index_away, carried)
        for site in self.sites:
            site.faults.keys_away = is_cut_short
            self._erase(site, person, until)
            site.faults.keys_away = False
            self._erase(site, person, until)

    @_there_is_much
    @precondition(lambda machine: not machine.index_away)
    @rule(customer=customers, source=sources, undo=st.sampled_from(["e1", "e2"]))
    def erase_after_a_retraction(self, customer: str, source: str, undo: str) -> None:
        """Which is not projected yet."""
        person, last = f"u:{customer}", {"id": "e3", "ts": LAST_ORDINAL, "u": customer, "undo": undo}
        pairs = self._published(source, [last])
        self.ledger.take(pairs)
        until, carried = self._grown_up(), self._carried(person)
        self.ledger.erase(person, until, True, carried)
        for site in self.sites:
            site.project(self.now)
            site.give(pairs, 1)
            self._erase(site, person, until)

    @_there_is_much
    @rule(person=persons, data=st.data())
    def erase_beside_a_commit(self, person: str, data: st.DataObject) -> None:
        pairs = self._drawn(data, 4)
        until, carried = self._grown_up(), self._carried(person)
        self.ledger.take(pairs)
        self.ledger.erase(person, until, not self.index_away, carried)
        for site in self.sites:
            self._beside(
                site,
                partial(self._erase, site, person, until),
                partial(site.give, pairs, 4),
            )

    @_there_is_much
    @rule(customer=customers, source=sources, some=st.lists(payloads, min_size=2, max_size=6))
    def erase_between_two_tasks(self, customer: str, source: str, some: list[dict[str, Any]]) -> None:
        """Of one batch: the second maps what is published later, and what both left is written together."""
        person = f"u:{customer}"
        theirs = [payload | {"u": customer} for payload in some]
        before = self._published(source, theirs[::2])
        on_their_way, until, carried = self.ledger.mapped(before), self._grown_up(), self._carried(person)
        self.ledger.erase(person, until, not self.index_away, carried)
        after = self._published(source, theirs[1::2])
        self.ledger.take([*on_their_way, *after])
        for site in self.sites:
            outputs = site.map(before)
            self._erase(site, person, until)
            site.commit(Held([*on_their_way, *after], [*outputs, *site.map(after)]))

    @_there_is_much
    @rule(customer=customers, source=sources, some=st.lists(payloads, min_size=2, max_size=6))
    def erase_before_a_batch_is_given_again(
        self, customer: str, source: str, some: list[dict[str, Any]]
    ) -> None:
        """It was interrupted before its commit; keys were made for what is then refused."""
        person = f"u:{customer}"
        pairs = self._published(source, [payload | {"u": customer} for payload in some])
        self.ledger.mapped(pairs)
        until, carried = self._grown_up(), self._carried(person)
        self.ledger.erase(person, until, not self.index_away, carried)
        self.ledger.take(pairs)
        for site in self.sites:
            site.map(pairs)
            self._erase(site, person, until)
            site.give(pairs, 4, is_again=True)

    def _carried(self, person: str) -> set[Identifier]:
        """While a policy for names arrives, an event and what takes it back may lie under two names of one fragment, and
        until these are joined the event counts. So they are joined first."""
        if is_anything_taken_back(person, self.ledger.pairs, self.snapshots):
            for site in self.sites:
                site.seal(self.now)
        return carried_by(person, self.ledger.pairs, self.snapshots)

    def _grown_up(self) -> int:
        """Everything that was accepted so far is of at most this ordinal, and what is published next is later."""
        until = self.age * 10 + LAST_ORDINAL
        self.age += 1
        return until

    def _erase(self, site: Site, person: str, until: int) -> None:
        try:
            site.erasure(self.now).erase([person], until, [person])
        except StoreError:
            assert site.faults.keys_away
        except ProfileIndexError:
            assert site.faults.index_away, "what is left is done by the next flow"

    @precondition(lambda machine: machine.ledger.is_anybody_erased)
    @rule(person=persons)
    def cancel(self, person: str) -> None:
        """What comes from now on counts, and what was on its way is released; not while the index keeps an erasure from
        being finished."""
        is_kept = self.index_away and self.ledger.is_unfinished
        if not is_kept:
            self.ledger.cancel(person)
        for site in self.sites:
            with pytest.raises(ProfileIndexError) if is_kept else nullcontext():
                site.erasure(self.now).cancel([person])

    @there_are_dead_letters
    @rule()
    def replay_dead_letters(self) -> None:
        self._replay()

    def _replay(self) -> None:
        self.ledger.replay(self.now)
        for site in self.sites:
            site.replay(self.now)

    @rule(
        pair=st.lists(st.sampled_from(IDENTIFIERS), min_size=2, max_size=2, unique=True),
        decision=st.sampled_from([Decision.ALWAYS, Decision.ALWAYS, Decision.NEVER, Decision.NONE]),
    )
    def pin(self, pair: list[Identifier], decision: Decision) -> None:
        """As `idgraph links` does; where somebody carries both."""
        self.decisions += 1
        for site in self.sites:
            site.pin(self.now, pair, decision, self.decisions)

    @precondition(lambda machine: not machine.index_away)
    @rule(back=st.sampled_from([0, 0, 1, 2, 5]))
    def project(self, back: int) -> None:
        """By a flow, or by a process that has not heard of the newest metadata."""
        for site in self.sites:
            site.project(max(1, self.now - back), is_late=back > 0)

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
