"""`append` and `union`: several values of several events."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from idgraph.model import canonical
from idgraph.model.classification import SealedValue
from idgraph.model.fragments import Kind, Register
from merge.policies.extremes import magnitude
from merge.policies.policy import Kept, Policy, is_plain, later


class Append(Policy):
    """An array is appended element by element, anything else as one. Of each source the values of the newest
    events stay, as many as the bound says."""

    BOUND = 1000

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


class Union(Policy):
    """An array adds its elements, anything else itself; null elements are left out. Of more elements than the
    bound those stay that a source said latest.

    Sealed values are distinguished by their blind-index token; those that have none never are the same.
    """

    BOUND = 1000
    shares_origins = True

    def entries(self, register: Register) -> Sequence[Register]:
        if is_plain(register) and type(register.value) is list:
            return [register._replace(value=each) for each in register.value if each is not None]
        return () if register.kind is Kind.DELETED else (register,)

    def key(self, entry: Register) -> Hashable:
        if entry.kind is Kind.SEALED:
            return SealedValue.parse(entry.value).token or entry.value
        return canonical.encode(entry.value)

    def chosen(self, kept: Kept) -> list[Register]:
        elements: dict[Hashable, Register] = {}
        for entry in kept.entries:
            key = self.key(entry)
            elements[key] = later(elements[key], entry) if key in elements else entry
        return list(elements.values())

    def value(self, values: Sequence[Any]) -> Any:
        # Sealed values too: the order of their bytes would say nothing to who may read them.
        return sorted(values, key=lambda value: (magnitude(value), canonical.encode(value)))
