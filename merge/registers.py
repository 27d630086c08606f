"""The order between two registers.

A later stamp wins. Stamps are equal only for one event, which may still have been mapped by two spec
versions, or been sent twice with different content by a careless source; spec, kind and canonical bytes
then decide, so that any two values have one winner whatever the order of arrival (law 1).
"""

from __future__ import annotations

from typing import Any

from model import canonical
from model.fragments import Register


def later(a: Register, b: Register) -> Register:
    """The winner of two registers: commutative, associative, idempotent."""
    if a[0] != b[0]:
        return a if a[0] > b[0] else b
    return a if order_key(a) >= order_key(b) else b


def order_key(register: Register) -> tuple[Any, ...]:
    """A key of the total order of registers; comparing two never compares values of different types."""
    stamp, spec, kind, value = register
    return stamp, spec, kind, canonical.encode(value)
