"""The disorder that a stream brings: late, again, in other batches, beside each other, interrupted."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.convergence.events import payloads
from tests.convergence.flows import Held
from tests.convergence.ways import Way
from tests.convergence.world import World, sources, ways

at_once = st.sampled_from([1, 2, 4, 8])


class Deliveries(World):
    """What flows do."""

    @rule(way=ways)
    def flow_by(self, way: Way) -> None:
        """A flow goes another way with its next batch, and with what is mapped already."""
        for site in self.sites:
            site.way = way

    @rule(source=sources, some=st.lists(payloads, min_size=3, max_size=10), back=st.integers(0, 2))
    def publish_some(self, source: str, some: list[dict[str, Any]], back: int) -> None:
        self._deliver(self._published(source, some, back), 1, 8)

    @rule(some=st.lists(payloads, min_size=3, max_size=10))
    def publish_of_both(self, some: list[dict[str, Any]]) -> None:
        half = len(some) // 2
        self._deliver([*self._published("shop", some[:half]), *self._published("crm", some[half:])], 8, 2)

    @rule(data=st.data(), first=at_once, second=at_once)
    def deliver_again(self, data: st.DataObject, first: int, second: int) -> None:
        """Some events, maybe under a newer snapshot than before."""
        self._deliver(self._drawn(data, 8), first, second)

    @rule(data=st.data())
    def hold_back(self, data: st.DataObject) -> None:
        """A task maps events, and is slow to commit."""
        pairs = self._drawn(data, 5)
        on_their_way = self.ledger.mapped(pairs)
        for site in self.sites:
            outputs = site.map(pairs)
            if on_their_way:
                site.held.append(Held(on_their_way, outputs))

    @precondition(lambda machine: machine.sites[0].held)
    @rule()
    def release(self) -> None:
        self._release()

    def _release(self) -> None:
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

    @precondition(lambda machine: machine.ledger.pairs)
    @rule(data=st.data())
    def crash_and_do_it_again(self, data: st.DataObject) -> None:
        """A batch is interrupted: half of its fragments are written. Then all of it is retried, under the snapshot
        that it had."""
        pairs = data.draw(st.lists(st.sampled_from([*self.ledger.pairs]), min_size=1, max_size=8))
        for site in self.sites:
            site.commit(Held(pairs, site.map(pairs)), share=2)
            site.give(pairs, 8, is_again=True)
