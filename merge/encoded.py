"""A state as the bytes it came as, which becomes registers only when one is asked for.

Most fragments of a batch are new, or come in few parts: what the commit needs of them - the join, the names, what
the index may know - is read from the bytes (native/states.c). What those loops do not know is decoded.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from idgraph import native
from idgraph.model.tombstones import NO_EPOCH
from merge import codec
from merge.fragments import FragmentState

_DECODED = frozenset(FragmentState.__slots__) - {"_newest", "encoded", "erasure_epoch"}


def state_of(data: bytes) -> FragmentState:
    """The state that these bytes hold. Raises as `codec.decode` does; DamagedStateError perhaps only when the state is
    looked into, where the checksum fits and what it is of was not written by `codec.encode`."""
    if native.states is None or data[:1] != codec.FORMAT:
        return codec.decode(data)
    codec.check(data)
    return EncodedState(data)


def as_state(state: FragmentState | bytes) -> FragmentState:
    """A state that may stand as the bytes that `codec.encode` gave: those are not checked again."""
    return EncodedState(state) if isinstance(state, bytes) else state


def _is_known(encoded: bytes | None) -> TypeGuard[bytes]:
    # What the loops read has no cells.
    return encoded is not None and encoded[:1] == codec.FORMAT


class EncodedState(FragmentState):
    """A state that is not decoded before it must be."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        # What is decoded stays unset: `__getattr__` is asked for what is not there.
        self._newest = None
        self.erasure_epoch = NO_EPOCH
        self.encoded = self._data = data

    def __getattr__(self, name: str) -> Any:
        if name not in _DECODED:
            raise AttributeError(name)
        decoded = codec.decode(self._data)
        for each in _DECODED:
            setattr(self, each, getattr(decoded, each))
        return getattr(decoded, name)

    def join(self, other: FragmentState) -> bool:
        if native.states is not None and self.encoded is not None and _is_known(other.encoded):
            joined = native.states.join(self.encoded, other.encoded)
            if joined is not None:
                return self._become(codec.framed(joined))
        return super().join(other)

    def _become(self, data: bytes) -> bool:
        if data == self.encoded:
            return False
        for each in _DECODED:
            try:
                delattr(self, each)
            except AttributeError:
                break
        self.encoded = self._data = data
        return True

    def normalise(self) -> None:
        # What was encoded was normalised before, and what is joined from bytes is normalised too.
        if self.encoded is None:
            super().normalise()

    def names(self) -> frozenset[str]:
        if native.states is not None and self.encoded is not None:
            names = native.states.identifiers(self.encoded)
            if names is not None:
                return names
        return super().names()
