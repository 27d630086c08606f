"""A fragment's state as bytes, for the store and the shuffle.

Byte 0 is the format: 0x01, or 0x02 for a state with cells, so that an idgraph that knows no cells refuses what
it would lose; bytes 1 to 4 are the CRC-32 of byte 0 and of all that follows them, so that a
damaged state is seen as one and not read as another. Then canonical JSON (`idgraph.model.canonical`), an array of

    [origins:     [[priority, ordinal, source, event id, spec name, spec version], ...] sorted,
     registers:   {path: [origin, kind, value]},
     markers:     [[source, scope, [priority, ordinal, source, event id]], ...] sorted,
     identifiers: {identifier: origin},
     sightings:   {shown identifiers: [oldest origin, newest origin]}]

and behind it, in format 2, the cells (`merge.cell_codec`):

    [..., makers, cells]

where `origin` is a place in `origins`: the values of one event share one. Equal states give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from idgraph.model import canonical
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.errors import DamagedStateError, StoreError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from merge import cell_codec
from merge.cells import Cell

FORMAT = b"\x01"
WITH_CELLS = b"\x02"
_HEADER = 5

_Origin = tuple[int, int, str, str, str, int]


class _Wire(msgspec.Struct, array_like=True):
    origins: list[_Origin]
    registers: dict[str, tuple[int, int, Any]]
    markers: list[tuple[str, str, tuple[int, int, str, str]]]
    identifiers: dict[str, int]
    sightings: dict[str, tuple[int, int]]
    makers: list[cell_codec.Maker] = []
    cells: cell_codec.Cells = {}


_decoder = msgspec.json.Decoder(_Wire, float_hook=canonical.exact_number)


class _EvidenceWire(msgspec.Struct, array_like=True):
    origins: list[_Origin]
    registers: msgspec.Raw
    markers: msgspec.Raw
    identifiers: dict[str, int]
    sightings: dict[str, tuple[int, int]]


_evidence_decoder = msgspec.json.Decoder(_EvidenceWire)


class StoredEvidence(NamedTuple):
    """The fields of `Parts` that say who it is."""

    identifiers: dict[str, Origin]
    sightings: dict[str, tuple[Origin, Origin]]


@dataclass(slots=True)
class Parts:
    """The content of a state: `registers` by attribute path, `cells` by path and policy, `markers` by (source, scope),
    `identifiers` by text form, `sightings` by key (`merge.identity.evidence.shown_key`)."""

    registers: dict[str, Register] = field(default_factory=dict)
    cells: dict[str, dict[ReconciliationPolicy, Cell]] = field(default_factory=dict)
    markers: dict[tuple[str, str], Stamp] = field(default_factory=dict)
    identifiers: dict[str, Origin] = field(default_factory=dict)
    sightings: dict[str, tuple[Origin, Origin]] = field(default_factory=dict)


def encode(parts: Parts) -> bytes:
    """Canonical bytes of a normalised state."""
    body = _body(parts)
    if not parts.cells:
        return framed(body)
    return framed(b"%s,%s]" % (body[:-1], cell_codec.encode(parts.cells)), WITH_CELLS)


def framed(body: bytes, form: bytes = FORMAT) -> bytes:
    """The bytes of a state whose JSON this is."""
    return b"".join((form, crc32(body, crc32(form)).to_bytes(_HEADER - 1, "big"), body))


def body(data: bytes) -> bytes:
    """The JSON of a state's bytes."""
    return data[_HEADER:]


def body_of(
    registers: dict[str, Register],
    identifiers: dict[str, Origin] | None = None,
    sightings: dict[str, tuple[Origin, Origin]] | None = None,
) -> bytes:
    """The JSON of a state of nothing but registers, identifiers and sightings."""
    return _body(Parts(registers, {}, {}, identifiers or {}, sightings or {}))


def _body(parts: Parts) -> bytes:
    # The values of one event share its origin, the very object: distinguished by identity, few are compared.
    distinct = {id(register[0]): register[0] for register in parts.registers.values()}
    distinct |= {id(origin): origin for origin in parts.identifiers.values()}
    distinct |= {id(origin): origin for span in parts.sightings.values() for origin in span}
    place: dict[int, int] = {}
    origins: list[Origin] = []
    for origin in sorted(distinct.values()):
        if not origins or origin != origins[-1]:
            origins.append(origin)
        place[id(origin)] = len(origins) - 1
    return canonical.encode(
        [
            [stamp + spec for stamp, spec in origins],
            {
                path: (place[id(origin)], kind, value)
                for path, (origin, kind, value) in parts.registers.items()
            },
            sorted((source, scope, stamp) for (source, scope), stamp in parts.markers.items()),
            {identifier: place[id(origin)] for identifier, origin in parts.identifiers.items()},
            {
                key: (place[id(oldest)], place[id(newest)])
                for key, (oldest, newest) in parts.sightings.items()
            },
        ]
    )


_CHECKSUMS = {form: crc32(form) for form in (FORMAT, WITH_CELLS)}
"""Checksums of each format's byte alone."""


def check(data: bytes) -> None:
    """Raises DamagedStateError for bytes whose checksum does not fit, StoreError for those of a later format."""
    begun = _CHECKSUMS.get(data[:1])
    if begun is None:
        raise _foreign(data)
    if (
        int.from_bytes(data[1:_HEADER], "big") != crc32(memoryview(data)[_HEADER:], begun)
        or len(data) < _HEADER
    ):
        raise DamagedStateError("a fragment's stored state is damaged: its checksum does not fit")


def decode(data: bytes) -> Parts:
    """Raises DamagedStateError for bytes that `encode` did not write, StoreError for those of a later format."""
    check(data)
    parts = Parts()
    try:
        wire = _decoder.decode(body(data))
        origins = _origins(wire)
        parts.registers = {
            path: _new(Register, (origins[origin], _KINDS[kind], value))
            for path, (origin, kind, value) in wire.registers.items()
        }
        parts.markers = {(source, scope): Stamp(*stamp) for source, scope, stamp in wire.markers}
        parts.identifiers, parts.sightings = _evidence(wire, origins)
        if wire.cells:
            parts.cells = cell_codec.decode(wire.makers, wire.cells)
    except (*canonical.MalformedJSON, LookupError, ValueError) as error:
        raise _damaged(error) from None
    return parts


def evidence(data: bytes) -> StoredEvidence:
    """As `decode`, but the rest is not read."""
    try:
        wire = _evidence_decoder.decode(body(data))
        return _evidence(wire, _origins(wire))
    except (*canonical.MalformedJSON, LookupError, ValueError) as error:
        raise _damaged(error) from None


def _origins(wire: _Wire | _EvidenceWire) -> list[Origin]:
    return [
        _new_origin(Origin, (_new_stamp(Stamp, origin[:4]), _new_spec(SpecRef, origin[4:])))
        for origin in wire.origins
    ]


def _evidence(wire: _Wire | _EvidenceWire, origins: list[Origin]) -> StoredEvidence:
    return StoredEvidence(
        {identifier: origins[origin] for identifier, origin in wire.identifiers.items()},
        {key: (origins[oldest], origins[newest]) for key, (oldest, newest) in wire.sightings.items()},
    )


def _damaged(error: Exception) -> DamagedStateError:
    return DamagedStateError(f"a fragment's stored state is damaged: {type(error).__name__}")


def _foreign(data: bytes) -> StoreError:
    # A later format is reported by its own checksum, so that a flipped bit is not taken for one.
    if crc32(data[_HEADER:], crc32(data[:1])).to_bytes(4, "big") == data[1:_HEADER]:
        return StoreError(f"fragment state of format {data[0]}; this idgraph reads up to {WITH_CELLS[0]}")
    return DamagedStateError("a fragment's stored state is damaged: its checksum does not fit")


_KINDS = tuple(Kind)
# The constructor of a NamedTuple, without its call: there is one for each leaf.
_new_origin: Callable[[type[Origin], tuple[Stamp, SpecRef]], Origin] = tuple.__new__
_new_stamp: Callable[[type[Stamp], tuple[int, int, str, str]], Stamp] = tuple.__new__
_new_spec: Callable[[type[SpecRef], tuple[str, int]], SpecRef] = tuple.__new__
_new: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__
