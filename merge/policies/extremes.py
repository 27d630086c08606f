"""`max` and `min`: the extreme of all values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

from idgraph.model import canonical
from idgraph.model.fragments import Register
from merge.policies.policy import Kept, Policy, is_plain, later


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


NUMBERS = frozenset({int, float, Decimal})


def magnitude(value: Any) -> tuple[int, Any]:
    """The key that a value compares by. Values of one magnitude are equal, but may be written otherwise: 1 and 1.0."""
    kind = type(value)
    if kind is bool:
        return 0, value
    if kind in NUMBERS:
        return 1, exact(value)
    if kind is str:
        return 2, value
    return 3, canonical.encode(value)


def exact(number: float | Decimal) -> int | Decimal:
    """The number that was written: 0.1 is one tenth, and not the double next to it."""
    return Decimal(repr(number)) if type(number) is float else number  # type: ignore[return-value]


class Maximum(Extreme):
    """By `magnitude`; of equal values the latest shows."""

    def better(self, one: Register, other: Register) -> bool:
        ours, theirs = magnitude(one.value), magnitude(other.value)
        return ours > theirs if ours != theirs else later(other, one) is one

    def entries(self, register: Register) -> tuple[Register, ...]:
        return (register,) if is_plain(register) else ()


class Minimum(Extreme):
    """By `magnitude`; of equal values the latest shows."""

    def better(self, one: Register, other: Register) -> bool:
        ours, theirs = magnitude(one.value), magnitude(other.value)
        return ours < theirs if ours != theirs else later(other, one) is one

    def entries(self, register: Register) -> tuple[Register, ...]:
        return (register,) if is_plain(register) else ()
