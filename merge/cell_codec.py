"""The cells of a fragment as JSON: of each entry its own fields, of what entries share one table.

    makers:  [[priority, source, spec name, spec version], ...] sorted,
    cells:   {path: {policy: [null | [maker, ordinal, event id], best entries, entries]}}

where an entry is `[maker, ordinal, event id, kind, value]`, a maker a place in `makers`, and entries are sorted
by origin, kind and canonical bytes. Equal cells give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from merge.cells import Cell
from merge.policies import POLICIES
from merge.registers import tie_break
from model import canonical
from model.attributes import ReconciliationPolicy
from model.fragments import Kind, Origin, Register
from model.stamps import SpecRef, Stamp

Maker = tuple[int, str, str, int]
Event = tuple[int, int, str]
Entry = tuple[int, int, str, int, Any]
Cells = dict[str, dict[str, tuple[Event | None, list[Entry], list[Entry]]]]


def encode(cells: Mapping[str, Mapping[ReconciliationPolicy, Cell]]) -> bytes:
    """Canonical bytes of the makers and, behind a comma, of normalised cells."""
    found = (cell for by_policy in cells.values() for cell in by_policy.values())
    makers = sorted({_maker(origin) for cell in found for origin in cell.origins()})
    place = {maker: number for number, maker in enumerate(makers)}

    def event(origin: Origin) -> Event:
        stamp = origin[0]
        return place[_maker(origin)], stamp[1], stamp[3]

    def wire(entries: Iterable[Register]) -> list[Entry]:
        return [(*event(entry[0]), entry[1], entry[2]) for entry in sorted(entries, key=_order)]

    def cell_wire(cell: Cell) -> tuple[Event | None, list[Entry], list[Entry]]:
        floor = event(cell.floor) if cell.floor is not None else None
        return floor, wire(cell.best.values()), wire(cell.entries.values())

    body = {
        path: {policy.value: cell_wire(cell) for policy, cell in by_policy.items()}
        for path, by_policy in cells.items()
    }
    return b"%s,%s" % (canonical.encode(makers), canonical.encode(body))


def decode(makers: list[Maker], cells: Cells) -> dict[str, dict[ReconciliationPolicy, Cell]]:
    """Raises LookupError or ValueError for what `encode` did not write."""
    return {
        path: {
            ReconciliationPolicy(policy): _cell(makers, policy, *wire) for policy, wire in by_policy.items()
        }
        for path, by_policy in cells.items()
    }


def _cell(
    makers: list[Maker], policy: str, floor: Event | None, best: list[Entry], kept: list[Entry]
) -> Cell:
    cell = Cell(POLICIES[ReconciliationPolicy(policy)])
    cell.floor = _origin(makers, *floor) if floor is not None else None
    cell.keep((_register(makers, entry) for entry in kept), (_register(makers, entry) for entry in best))
    return cell


def _register(makers: list[Maker], entry: Entry) -> Register:
    maker, ordinal, event_id, kind, value = entry
    return Register(_origin(makers, maker, ordinal, event_id), Kind(kind), value)


def _origin(makers: list[Maker], maker: int, ordinal: int, event_id: str) -> Origin:
    priority, source, name, version = makers[maker]
    return Origin(Stamp(priority, ordinal, source, event_id), SpecRef(name, version))


def _maker(origin: Origin) -> Maker:
    (priority, _, source, _), (name, version) = origin
    return priority, source, name, version


def _order(entry: Register) -> tuple[Origin, tuple[int, bytes]]:
    return entry[0], tie_break(entry)
