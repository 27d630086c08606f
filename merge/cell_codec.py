"""The cells of a fragment as JSON: of each entry its own fields, of what entries share one table.

    makers:  [[priority, source, spec name, spec version], ...] sorted,
    cells:   {path: {policy: [null | [maker, ordinal, event id], best entries, entries]}}

where an entry is `[maker, ordinal, event id, kind, value]`, a maker a place in `makers`, and entries are sorted
by origin, those of one origin by kind and canonical bytes. Equal cells give equal bytes.

Where a cell has many entries there is `[null | ..., [], [], runs]`, and the entries are in blocks behind the JSON
(`merge.packed`), those of all cells in the order of paths and policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from idgraph.model import canonical
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from merge.cells import Cell
from merge.packed import LARGE, Bytes, Packed, Run
from merge.policies import POLICIES, Policy

Maker = tuple[int, str, str, int]
Event = tuple[int, int, str]
_Shared = tuple[int, str, SpecRef]
Entry = tuple[int, int, str, int, Any]


class CellWire(msgspec.Struct, array_like=True):
    """One cell."""

    floor: Event | None
    best: list[Entry]
    entries: list[Entry]
    runs: list[Run] = []


Cells = dict[str, dict[str, CellWire]]


def encode(cells: Mapping[str, Mapping[ReconciliationPolicy, Cell]]) -> tuple[bytes, list[Bytes]]:
    """Canonical bytes of the makers and, behind a comma, of normalised cells; and of the blocks of large ones."""
    found = [cell for by_policy in cells.values() for cell in by_policy.values()]
    for cell in found:
        _pack(cell)
    makers = sorted({_maker(origin) for cell in found for origin in _reported_origins(cell)})
    place = {maker: number for number, maker in enumerate(makers)}
    blocks: list[Bytes] = []

    def event(origin: Origin) -> Event:
        stamp = origin[0]
        return place[_maker(origin)], stamp[1], stamp[3]

    def wire(policy: Policy, entries: Iterable[Register]) -> list[Entry]:
        return [(*event(entry[0]), entry[1], entry[2]) for entry in sorted(entries, key=policy.rank)]

    def cell_wire(cell: Cell) -> list[Any]:
        floor = event(cell.floor) if cell.floor is not None else None
        if cell.packed is not None:
            runs, data = cell.packed.encode()
            blocks.extend(data)
            return [floor, [], [], runs]
        return [floor, wire(cell.policy, cell.best.values()), wire(cell.policy, cell.entries.values())]

    body = {
        path: {policy.value: cell_wire(cells[path][policy]) for policy in sorted(cells[path])}
        for path in sorted(cells)
    }
    return b"%s,%s" % (canonical.encode(makers), canonical.encode(body)), blocks


def _pack(cell: Cell) -> None:
    """Have equal cells kept in the same way."""
    if not cell.policy.is_packed:
        return
    if cell.size < LARGE:
        cell.unpack()
    elif cell.packed is None:
        cell.packed = Packed.of(cell.policy, cell.entries.values())


def _reported_origins(cell: Cell) -> Iterable[Origin]:
    if cell.packed is None:
        return cell.origins()
    return () if cell.floor is None else (cell.floor,)


def decode(
    makers: list[Maker], cells: Cells, blocks: memoryview
) -> dict[str, dict[ReconciliationPolicy, Cell]]:
    """Raises LookupError or ValueError for what `encode` did not write."""
    rest = blocks
    decoded: dict[str, dict[ReconciliationPolicy, Cell]] = {}
    for path, by_policy in cells.items():
        for policy, wire in by_policy.items():
            cell = _cell(makers, policy, wire)
            if wire.runs:
                cell.packed, taken = Packed.parse(cell.policy, wire.runs, rest)
                rest = rest[taken:]
            decoded.setdefault(path, {})[ReconciliationPolicy(policy)] = cell
    if rest:
        raise ValueError("there is something behind the blocks")
    return decoded


def _cell(makers: list[Maker], policy: str, wire: CellWire) -> Cell:
    shared = [(priority, source, SpecRef(name, version)) for priority, source, name, version in makers]
    cell = Cell(POLICIES[ReconciliationPolicy(policy)])
    cell.floor = _origin(shared, *wire.floor) if wire.floor is not None else None
    cell.keep(
        (_register(shared, entry) for entry in wire.entries),
        (_register(shared, entry) for entry in wire.best),
    )
    return cell


def _register(shared: list[_Shared], entry: Entry) -> Register:
    maker, ordinal, event_id, kind, value = entry
    return _new_register(Register, (_origin(shared, maker, ordinal, event_id), _KINDS[kind], value))


def _origin(shared: list[_Shared], maker: int, ordinal: int, event_id: str) -> Origin:
    priority, source, spec = shared[maker]
    return _new_origin(Origin, (_new_stamp(Stamp, (priority, ordinal, source, event_id)), spec))


def _maker(origin: Origin) -> Maker:
    (priority, _, source, _), (name, version) = origin
    return priority, source, name, version


_KINDS = tuple(Kind)
# What a NamedTuple's own constructor does, without its call: there is one for each entry.
_new_origin: Callable[[type[Origin], tuple[Stamp, SpecRef]], Origin] = tuple.__new__
_new_stamp: Callable[[type[Stamp], tuple[int, int, str, str]], Stamp] = tuple.__new__
_new_register: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__
