"""What events make of a fragment, as the bytes of a state: no object for each of their values."""

from __future__ import annotations

from collections.abc import Sequence

from merge import codec
from merge.encoded import EncodedState
from merge.fragments import FragmentState
from model import canonical, native
from model.fragments import Register


def sealed_part(registers: dict[str, Register]) -> bytes:
    """Sealed registers of an event as the JSON of a state."""
    if native.loops is not None:
        body = native.loops.body(registers, {}, [], canonical.encode)
        if body is not None:
            return body
    state = FragmentState()
    state.registers.update(registers)
    return codec.body(codec.encode(state))


def joined(parts: Sequence[bytes]) -> FragmentState:
    """The join of states, each given as its JSON: at least one."""
    if len(parts) > 1 and native.states is not None:
        body = native.states.join_all(tuple(parts))
        if body is not None:
            return EncodedState(codec.framed(body))
    whole, *others = (EncodedState(codec.framed(part)) for part in parts)
    for other in others:
        whole.join(other)
    return whole
