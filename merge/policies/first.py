"""`first`: the earliest value."""

from __future__ import annotations

from idgraph.model.fragments import Kind, Register
from merge.policies.extreme import Extreme
from merge.registers import tie_break


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
