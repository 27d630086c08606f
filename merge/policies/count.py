"""`count`: how many events wrote a value, each counted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from idgraph.model.fragments import Kind, Register
from merge.policies.policy import Kept, Policy


class Count(Policy):
    """Keeps the stamps of events and nothing of their values. Of each source it counts up to the bound."""

    BOUND = 10_000
    is_packed = True
    keeps_values = False

    def entries(self, register: Register) -> Sequence[Register]:
        return () if register.kind is Kind.DELETED else (Register(register.origin, Kind.PLAIN, 1),)

    def chosen(self, kept: Kept) -> list[Register]:
        return sorted(kept.entries, key=lambda entry: entry.origin)

    def value(self, values: Sequence[Any]) -> Any:
        return len(values)
