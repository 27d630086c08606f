"""A fragment's state as bytes, for the store and the shuffle.

Format 1, canonical JSON (`model.canonical`), an array of

    [1,
     origins:     [[priority, ordinal, source, event id, spec name, spec version], ...] sorted,
     registers:   {path: [origin, kind, value]},
     markers:     [[source, scope, [priority, ordinal, source, event id]], ...] sorted,
     identifiers: {identifier: origin}]

where `origin` is a place in `origins`: the values of one event share one. Equal states give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from merge.fragments import FragmentState
from model import canonical
from model.errors import DamagedStateError, StoreError
from model.fragments import Kind, Origin, Register
from model.stamps import SpecRef, Stamp

FORMAT = 1

_Origin = tuple[int, int, str, str, str, int]


class _Wire(msgspec.Struct, array_like=True):
    format: int
    origins: list[_Origin]
    registers: dict[str, tuple[int, int, Any]]
    markers: list[tuple[str, str, tuple[int, int, str, str]]]
    identifiers: dict[str, int]


_decoder = msgspec.json.Decoder(_Wire, float_hook=canonical.exact_number)


def encode(state: FragmentState) -> bytes:
    """Canonical bytes of a normalised state."""
    if state.encoded is not None:
        return state.encoded
    # The values of one event share its origin, the very object, so few origins need to be hashed.
    distinct = {id(register[0]): register[0] for register in state.registers.values()}
    origins = sorted({*distinct.values(), *state.identifiers.values()})
    place = {origin: index for index, origin in enumerate(origins)}
    place_of = {key: place[origin] for key, origin in distinct.items()}
    return canonical.encode(
        [
            FORMAT,
            [(*stamp, *spec) for stamp, spec in origins],
            {
                path: (place_of[id(origin)], kind, value)
                for path, (origin, kind, value) in state.registers.items()
            },
            sorted((source, scope, stamp) for (source, scope), stamp in state.markers.items()),
            {identifier: place[origin] for identifier, origin in state.identifiers.items()},
        ]
    )


def decode(data: bytes) -> FragmentState:
    """Raises DamagedStateError for bytes that `encode` did not write, StoreError for those of a later one."""
    try:
        wire = _decoder.decode(data)
        if wire.format != FORMAT:
            raise StoreError(f"fragment state of format {wire.format}; this idgraph reads format {FORMAT}")
        origins = [Origin(Stamp(*origin[:4]), SpecRef(*origin[4:])) for origin in wire.origins]
        state = FragmentState()
        state.registers = {
            path: _new(Register, (origins[origin], _KINDS[kind], value))
            for path, (origin, kind, value) in wire.registers.items()
        }
        state.markers = {(source, scope): Stamp(*stamp) for source, scope, stamp in wire.markers}
        state.identifiers = {identifier: origins[origin] for identifier, origin in wire.identifiers.items()}
    except (msgspec.MsgspecError, IndexError, RecursionError) as error:
        raise DamagedStateError(f"a fragment's stored state is damaged: {type(error).__name__}") from None
    state.encoded = data
    return state


_KINDS = tuple(Kind)
# What a NamedTuple's own constructor does, without its call: there is one for each leaf.
_new: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__
