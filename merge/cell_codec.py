"""The cells of a fragment as JSON: of each entry its own fields, of what entries share one table.

    makers:  [[priority, source, spec name, spec version], ...] sorted,
    cells:   {path: {policy: [null | [maker, ordinal, event id], best entries, entries]}}

where an entry is `[maker, ordinal, event id, kind, value]`, a maker a place in `makers`, and entries are sorted
by origin, those of one origin by kind and canonical bytes. Equal cells give equal bytes.
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


Cells = dict[str, dict[str, CellWire]]


def encode(cells: Mapping[str, Mapping[ReconciliationPolicy, Cell]]) -> bytes:
    """Canonical bytes of the makers and, behind a comma, of normalised cells."""
    found = [cell for by_policy in cells.values() for cell in by_policy.values()]
    makers = sorted({_maker(origin) for cell in found for origin in cell.origins()})
    place = {maker: number for number, maker in enumerate(makers)}

    def event(origin: Origin) -> Event:
        stamp = origin[0]
        return place[_maker(origin)], stamp[1], stamp[3]

    def wire(policy: Policy, entries: Iterable[Register]) -> list[Entry]:
        return [(*event(entry[0]), entry[1], entry[2]) for entry in sorted(entries, key=policy.rank)]

    def cell_wire(cell: Cell) -> list[Any]:
        floor = event(cell.floor) if cell.floor is not None else None
        return [floor, wire(cell.policy, cell.best.values()), wire(cell.policy, cell.entries.values())]

    body = {
        path: {policy.value: cell_wire(cells[path][policy]) for policy in sorted(cells[path])}
        for path in sorted(cells)
    }
    return b"%s,%s" % (canonical.encode(makers), canonical.encode(body))


def decode(makers: list[Maker], cells: Cells) -> dict[str, dict[ReconciliationPolicy, Cell]]:
    """Raises LookupError or ValueError for what `encode` did not write."""
    shared = [(priority, source, SpecRef(name, version)) for priority, source, name, version in makers]
    return {
        path: {
            ReconciliationPolicy(policy): _cell(shared, policy, wire) for policy, wire in by_policy.items()
        }
        for path, by_policy in cells.items()
    }


def _cell(shared: list[_Shared], policy: str, wire: CellWire) -> Cell:
    cell = Cell(POLICIES[ReconciliationPolicy(policy)])
    cell.floor = _origin(shared, *wire.floor) if wire.floor is not None else None
    entries = (_register(shared, entry) for entry in wire.entries)
    cell.entries = {(entry[0][0][2], cell.policy.key(entry)): entry for entry in entries}
    cell.keep((), (_register(shared, entry) for entry in wire.best))
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
# The constructor of a NamedTuple, without its call: there is one for each entry.
_new_origin: Callable[[type[Origin], tuple[Stamp, SpecRef]], Origin] = tuple.__new__
_new_stamp: Callable[[type[Stamp], tuple[int, int, str, str]], Stamp] = tuple.__new__
_new_register: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__
