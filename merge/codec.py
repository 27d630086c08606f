"""A fragment's state as bytes, for the store and the shuffle.

Byte 0 is the format: 0x01, or 0x02 for a state with cells, so that an idgraph that knows no cells refuses what
it would lose; bytes 1 to 4 are the CRC-32 of byte 0 and of all that follows them, so that a
damaged state is seen as one and not read as another. Then canonical JSON (`idgraph.model.canonical`), an array of

    [origins:     [[priority, ordinal, source, event id, spec name, spec version], ...] sorted,
     registers:   {path: [origin, kind, value]},
     markers:     [[source, scope, [priority, ordinal, source, event id]], ...] sorted,
     identifiers: {identifier: origin},
     sightings:   {shown identifiers: [oldest origin, newest origin]}]

and behind it, in format 2, the cells: of each entry its own fields, of what entries share one table:

    [..., makers:  [[priority, source, spec name, spec version], ...] sorted,
          cells:   {path: {policy: [null | [maker, ordinal, event id], best entries, entries]}}]

An `origin` is a place in `origins`: the values of one event share one. An entry is `[maker, ordinal, event id, kind,
value]`, a maker a place in `makers`; entries are sorted by origin, those of one origin by kind and canonical bytes.
Equal states give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from idgraph.model import canonical
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.errors import DamagedStateError, StoreError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from merge.cells import Cell
from merge.policies import POLICIES, Policy

FORMAT = b"\x01"
WITH_CELLS = b"\x02"
_HEADER = 5

_Origin = tuple[int, int, str, str, str, int]

_Maker = tuple[int, str, str, int]
_Event = tuple[int, int, str]
_Shared = tuple[int, str, SpecRef]
_Entry = tuple[int, int, str, int, Any]


class _CellWire(msgspec.Struct, array_like=True):
    """One cell."""

    floor: _Event | None
    best: list[_Entry]
    entries: list[_Entry]


_Cells = dict[str, dict[str, _CellWire]]


class _Wire(msgspec.Struct, array_like=True):
    origins: list[_Origin]
    registers: dict[str, tuple[int, int, Any]]
    markers: list[tuple[str, str, tuple[int, int, str, str]]]
    identifiers: dict[str, int]
    sightings: dict[str, tuple[int, int]]
    makers: list[_Maker] = []
    cells: _Cells = {}


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
    return framed(b"%s,%s]" % (body[:-1], _encoded_cells(parts.cells)), WITH_CELLS)


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


def may_keep_events(data: bytes) -> bool:
    """Whether some event can be kept by itself (`evidence.is_of_one_event`). If not, none is."""
    return b'"|' in data


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
            parts.cells = _decoded_cells(wire.makers, wire.cells)
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


def _encoded_cells(cells: Mapping[str, Mapping[ReconciliationPolicy, Cell]]) -> bytes:
    """Canonical bytes of the makers and, behind a comma, of normalised cells."""
    found = [cell for by_policy in cells.values() for cell in by_policy.values()]
    makers = sorted({_maker(origin) for cell in found for origin in cell.origins()})
    place = {maker: number for number, maker in enumerate(makers)}

    def event(origin: Origin) -> _Event:
        stamp = origin[0]
        return place[_maker(origin)], stamp[1], stamp[3]

    def wire(policy: Policy, entries: Iterable[Register]) -> list[_Entry]:
        return [(*event(entry[0]), entry[1], entry[2]) for entry in sorted(entries, key=policy.rank)]

    def cell_wire(cell: Cell) -> list[Any]:
        floor = event(cell.floor) if cell.floor is not None else None
        return [floor, wire(cell.policy, cell.best.values()), wire(cell.policy, cell.entries.values())]

    body = {
        path: {policy.value: cell_wire(cells[path][policy]) for policy in sorted(cells[path])}
        for path in sorted(cells)
    }
    return b"%s,%s" % (canonical.encode(makers), canonical.encode(body))


def _decoded_cells(makers: list[_Maker], cells: _Cells) -> dict[str, dict[ReconciliationPolicy, Cell]]:
    """Raises LookupError or ValueError for what `_encoded_cells` did not write."""
    shared = [(priority, source, SpecRef(name, version)) for priority, source, name, version in makers]
    return {
        path: {
            ReconciliationPolicy(policy): _cell(shared, policy, wire) for policy, wire in by_policy.items()
        }
        for path, by_policy in cells.items()
    }


def _cell(shared: list[_Shared], policy: str, wire: _CellWire) -> Cell:
    cell = Cell(POLICIES[ReconciliationPolicy(policy)])
    cell.floor = _origin(shared, *wire.floor) if wire.floor is not None else None
    entries = (_register(shared, entry) for entry in wire.entries)
    cell.entries = {(entry[0][0][2], cell.policy.key(entry)): entry for entry in entries}
    cell.keep((), (_register(shared, entry) for entry in wire.best))
    return cell


def _register(shared: list[_Shared], entry: _Entry) -> Register:
    maker, ordinal, event_id, kind, value = entry
    return _new(Register, (_origin(shared, maker, ordinal, event_id), _KINDS[kind], value))


def _origin(shared: list[_Shared], maker: int, ordinal: int, event_id: str) -> Origin:
    priority, source, spec = shared[maker]
    return _new_origin(Origin, (_new_stamp(Stamp, (priority, ordinal, source, event_id)), spec))


def _maker(origin: Origin) -> _Maker:
    (priority, _, source, _), (name, version) = origin
    return priority, source, name, version


_KINDS = tuple(Kind)
# The constructor of a NamedTuple, without its call: there is one for each leaf.
_new_origin: Callable[[type[Origin], tuple[Stamp, SpecRef]], Origin] = tuple.__new__
_new_stamp: Callable[[type[Stamp], tuple[int, int, str, str]], Stamp] = tuple.__new__
_new_spec: Callable[[type[SpecRef], tuple[str, int]], SpecRef] = tuple.__new__
_new: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__
