"""`append`, `union`, `count` and `sum`: all values of several events."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

from idgraph.model import canonical
from idgraph.model.classification import SealedValue
from idgraph.model.fragments import Kind, Register
from merge.policies.extremes import NUMBERS, exact, magnitude
from merge.policies.policy import Kept, Policy, is_plain, later


class Append(Policy):
    """An array is appended element by element, anything else as one. The bound says how many of each source's newest
    values stay."""

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
    """An array adds its elements, anything else itself; null elements are left out. If there are more than the bound,
    those stay that a source said latest.

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


class Count(Policy):
    """Keeps the stamps of events and nothing of their values. It counts each source up to the bound."""

    BOUND = 10_000
    keeps_values = False

    def entries(self, register: Register) -> Sequence[Register]:
        return () if register.kind is Kind.DELETED else (Register(register.origin, Kind.PLAIN, 1),)

    def chosen(self, kept: Kept) -> list[Register]:
        return sorted(kept.entries, key=lambda entry: entry.origin)

    def value(self, values: Sequence[Any]) -> Any:
        return len(values)


_LARGEST_INTEGER = 10**sys.int_info.default_max_str_digits
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class Sum(Policy):
    """Each event's number is an entry under its stamp, so that an event that comes again adds nothing. If there are
    more than the bound, the newest of each source are summed. A value that is no number adds nothing."""

    BOUND = 10_000

    def entries(self, register: Register) -> Sequence[Register]:
        return (register,) if is_plain(register) and type(register.value) in NUMBERS else ()

    def chosen(self, kept: Kept) -> list[Register]:
        return sorted(kept.entries, key=lambda entry: entry.origin)

    def value(self, values: Sequence[Any]) -> Any:
        if all(type(value) is int for value in values):
            total_of_integers = sum(values)
            # Python refuses to write integers of more digits, but not decimals.
            within = abs(total_of_integers) < _LARGEST_INTEGER
            return total_of_integers if within else Decimal(total_of_integers)
        total = Decimal(0)
        for value in values:
            total = _EXACT.add(total, Decimal(exact(value)))
        try:
            return canonical.exact_number(str(_EXACT.normalize(total)))
        except OverflowError:
            # Too large to be read again from JSON, and still exact.
            return total
