"""The projection, as commands and flows run it once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.store import OutboxShare, ProfileStore
from idgraph.projection.parts import Projected, Work
from idgraph.projection.projection import AT_ONCE, Projection

T = TypeVar("T")


def sweep(store: ProfileStore, index: ProfileIndex, rules: IndexRules, at_once: int = AT_ONCE) -> int:
    """Project all that waits; gives how many the index refused."""
    return Projection(store, index, lambda: rules, at_once).sweep().left()


def project(store: ProfileStore, index: ProfileIndex, rules: IndexRules, ids: Iterable[str]) -> set[str]:
    """Project these fragments; gives those that the index refused."""
    return {*Projection(store, index, lambda: rules).project(ids).refused}


class Shuffled:
    """`Tasks` in this process: parts of any size in any order, some twice, by any of several projections."""

    at_once = 5

    def __init__(self, store: ProfileStore, projected_by: Callable[[], Projection], random: Random) -> None:
        self._store = store
        self._projections = [projected_by() for _ in range(3)]
        self._random = random

    def sweep(self, waiting: Mapping[str, int]) -> Projected:
        entries = [name for name, version in self._store.outbox(10_000) if waiting.get(name) != version]
        some = self._random.sample(entries, self._random.randint(0, len(entries)))
        before = self._run(self._split(some), lambda projection, part: projection.project(part))
        of = self._random.randint(1, 4)
        total = self._run(
            [OutboxShare(number, of) for number in range(of)],
            lambda projection, share: projection.share(share, waiting, math.inf),
        )
        total.has_split |= before.has_split
        return total

    def follow(self, work: Work, ids: Sequence[str]) -> Projected:
        some = self._random.sample(ids, len(ids))
        return self._run(self._split(some), lambda projection, part: projection.follow(work, part))

    def _split(self, ids: Sequence[str]) -> list[Sequence[str]]:
        parts: list[Sequence[str]] = []
        while ids:
            size = self._random.randint(1, len(ids))
            parts.append(ids[:size])
            ids = ids[size:]
        return parts

    def _run(self, parts: list[T], does: Callable[[Projection, T], Projected]) -> Projected:
        total = Projected()
        # An executor is lost behind its work: the engine repeats it.
        parts += [each for each in parts if self._random.random() < 0.3]
        self._random.shuffle(parts)
        for each in parts:
            total.add(does(self._random.choice(self._projections), each))
        return total
