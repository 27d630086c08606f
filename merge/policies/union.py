"""`union`: the set of all values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from idgraph.model import canonical
from idgraph.model.fragments import Kind, Register
from idgraph.model.sealed import SealedValue
from merge.policies.magnitude import magnitude
from merge.policies.policy import Kept, Policy, is_plain
from merge.registers import later


class Union(Policy):
    """An array adds its elements, anything else itself; null elements are left out. Of more elements than the
    bound those stay that a source said latest.

    Sealed values are distinguished by their blind-index token; those that have none never are the same.
    """

    BOUND = 1000
    is_packed = True
    shares_origins = True

    def entries(self, register: Register) -> Sequence[Register]:
        if is_plain(register) and type(register.value) is list:
            return [register._replace(value=each) for each in register.value if each is not None]
        return () if register.kind is Kind.DELETED else (register,)

    def key(self, entry: Register) -> Hashable:
        if entry.kind is Kind.SEALED:
            return SealedValue.parse(entry.value).token or entry.value
        return canonical.encode(entry.value)

    def lookup_key(self, entry: Register) -> bytes:
        if entry.kind is Kind.SEALED:
            return (SealedValue.parse(entry.value).token or entry.value).encode()
        # Behind its kind, at the end of its entry.
        return b",%d,%s]" % (entry.kind, canonical.encode(entry.value))

    def chosen(self, kept: Kept) -> list[Register]:
        elements: dict[Hashable, Register] = {}
        for entry in kept.entries:
            key = self.key(entry)
            elements[key] = later(elements[key], entry) if key in elements else entry
        return list(elements.values())

    def value(self, values: Sequence[Any]) -> Any:
        # Sealed values too: the order of their bytes would say nothing to who may read them.
        return sorted(values, key=lambda value: (magnitude(value), canonical.encode(value)))
