"""The projection, as commands and flows run it once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.store import ProfileStore
from idgraph.projection.parts import Projected, Work
from idgraph.projection.projection import AT_ONCE, Projection


def sweep(store: ProfileStore, index: ProfileIndex, rules: IndexRules, at_once: int = AT_ONCE) -> int:
    """Project all that waits; gives how many the index refused."""
    return Projection(store, index, lambda: rules, at_once).sweep().left()


def project(store: ProfileStore, index: ProfileIndex, rules: IndexRules, ids: Iterable[str]) -> set[str]:
    """Project these fragments; gives those that the index refused."""
    return {*Projection(store, index, lambda: rules).project(ids).refused}


class Shuffled:
    """`Tasks` in this process: parts of any size in any order, some twice, by any of several projections."""

    def __init__(self, projected_by: Callable[[], Projection], random: Random, at_once: int = 5) -> None:
        self.at_once = at_once
        self._projections = [projected_by() for _ in range(3)]
        self._random = random

    def run(self, work: Work, ids: Sequence[str]) -> Projected:
        total, remaining = Projected(), list(ids)
        self._random.shuffle(remaining)
        while remaining:
            size = self._random.randint(1, len(remaining))
            part, remaining = remaining[:size], remaining[size:]
            total.add(self._random.choice(self._projections).part(work, part))
            if self._random.random() < 0.3:
                # An executor is lost behind its work: the engine repeats it.
                again = self._random.choice(self._projections).part(work, part)
                total.has_split |= again.has_split
        return total
