"""`min`: the least value."""

from __future__ import annotations

from idgraph.model.fragments import Register
from merge.policies.extreme import Extreme
from merge.policies.magnitude import magnitude
from merge.policies.policy import is_plain
from merge.registers import later


class Minimum(Extreme):
    """By `magnitude`; of equal values the latest shows."""

    def better(self, one: Register, other: Register) -> bool:
        ours, theirs = magnitude(one.value), magnitude(other.value)
        return ours < theirs if ours != theirs else later(other, one) is one

    def entries(self, register: Register) -> tuple[Register, ...]:
        return (register,) if is_plain(register) else ()
