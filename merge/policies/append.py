"""`append`: all values in the order of their stamps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from idgraph.model.fragments import Kind, Register
from merge.policies.policy import Kept, Policy


class Append(Policy):
    """An array is appended element by element, anything else as one. Of each source the values of the newest
    events stay, as many as the bound says."""

    BOUND = 1000
    is_packed = True

    def entries(self, register: Register) -> Sequence[Register]:
        return () if register.kind is Kind.DELETED else (register,)

    def chosen(self, kept: Kept) -> list[Register]:
        return sorted(kept.entries, key=lambda entry: entry.origin)

    def value(self, values: Sequence[Any]) -> Any:
        appended: list[Any] = []
        for value in values:
            if type(value) is list:
                appended += value
            else:
                appended.append(value)
        return appended
