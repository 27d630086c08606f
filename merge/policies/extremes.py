"""`max`, `min`, `first` and `source_priority`: one value of all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from itertools import groupby
from typing import Any

from idgraph.model import canonical
from idgraph.model.fragments import Kind, Register
from merge.policies.policy import Kept, Policy, is_plain, later, tie_break


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


class First(Extreme):
    """Decides without reading values. A higher spec priority wins, as everywhere; then the lowest ordinal. If the
    first event has two versions, the newer spec's shows."""

    def better(self, one: Register, other: Register) -> bool:
        ours, theirs = one.stamp, other.stamp
        if ours != theirs:
            return (-ours.priority, *ours[1:]) < (-theirs.priority, *theirs[1:])
        return (one.spec, tie_break(one)) > (other.spec, tie_break(other))

    def taken(self, best: Register) -> Register:
        """Without its value, which nobody is to see any longer and which decides nothing."""
        return best._replace(kind=Kind.DELETED, value=None)

    def entries(self, register: Register) -> tuple[Register, ...]:
        return () if register.kind is Kind.DELETED else (register,)


class SourcePriority(Policy):
    """Keeps the latest of each source; which of them shows is asked when it is read, so that another order of
    the sources holds for what is stored too. A null takes away what its own source said, and no more."""

    BOUND = 1
    null_deletes = False

    def chosen(self, kept: Kept) -> list[Register]:
        saying = [entry for entry in kept.entries if entry.kind is not Kind.DELETED]
        for source in kept.sources:
            said = [entry for entry in saying if entry.stamp.source == source]
            if said:
                return said
        return [reduce(later, saying)] if saying else []

    def value(self, values: Sequence[Any]) -> Any:
        return values[0]
