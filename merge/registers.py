"""The order between two registers.

A later stamp wins. Stamps are equal only for one event, which may still have been mapped by two spec
versions, or been sent twice with different content by a careless source; spec, kind and canonical bytes
then decide, so that any two values have one winner whatever the order of arrival (law 1).
"""

from __future__ import annotations

from idgraph.model import canonical
from idgraph.model.fragments import Register


def later(a: Register, b: Register) -> Register:
    """The winner of two registers: commutative, associative, idempotent."""
    if a[0] != b[0]:
        return a if a[0] > b[0] else b
    return a if tie_break(a) >= tie_break(b) else b


def tie_break(register: Register) -> tuple[int, bytes]:
    """What decides between two values of one origin. Never by `==`: to Python 1, 1.0 and True are equal, and
    the first to arrive would stay; and values of different types do not compare."""
    return register[1], canonical.encode(register[2])
