"""`first` and `source_priority`: one value, by its place among the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from idgraph.model.fragments import Kind, Register
from merge.policies.extremes import Extreme
from merge.policies.policy import Kept, Policy, later, tie_break


class First(Extreme):
    """Decides without reading values. A higher spec priority wins, as everywhere; then the lowest ordinal. Of two
    versions of the first event the newer spec's shows."""

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
