"""`source_priority`: the latest value of the most trusted source that says something."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from idgraph.model.fragments import Kind, Register
from merge.policies.policy import Kept, Policy
from merge.registers import later


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
