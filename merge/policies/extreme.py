"""What `first`, `max` and `min` have in common: one entry shows, the best of all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from idgraph.model.fragments import Register
from merge.policies.policy import Kept, Policy


class Extreme(Policy):
    """Keeps the best entry of each source for good, and the newest ones, of which the best shows where something
    took that one away.

    While a source has written fewer values than the bound, the newest are all there are, and then they alone
    decide: a newer spec version of an event replaces what the older one made of it.
    """

    BOUND = 32
    keeps_best = True

    @abstractmethod
    def better(self, one: Register, other: Register) -> bool: ...

    def chosen(self, kept: Kept) -> list[Register]:
        winner: Register | None = None
        best = {each.stamp.source: each for each in kept.best}
        for source, some in groupby(sorted(kept.entries, key=_source), key=_source):
            candidates = list(some)
            if len(candidates) >= self.bound and source in best:
                candidates.append(best[source])
            for each in candidates:
                if winner is None or self.better(each, winner):
                    winner = each
        return [] if winner is None else [winner]

    def value(self, values: Sequence[Any]) -> Any:
        return values[0]


def _source(entry: Register) -> str:
    return entry.stamp.source
