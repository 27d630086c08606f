"""The cells of a fragment as JSON: of each entry its own fields, of what entries share one table.

    makers:  [[priority, source, spec name, spec version], ...] sorted,
    cells:   {path: {policy: [null | [maker, ordinal, event id], best entries, entries]}}

where an entry is `[maker, ordinal, event id, kind, value]`, a maker a place in `makers`, and entries are sorted
by origin, those of one origin by kind and canonical bytes. Equal cells give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from merge.cells import Cell
from merge.policies import POLICIES, Policy
from model import canonical
from model.attributes import ReconciliationPolicy
from model.fragments import Kind, Origin, Register
from model.stamps import SpecRef, Stamp

Maker = tuple[int, str, str, int]
Event = tuple[int, int, str]
_Shared = tuple[int, str, SpecRef]
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

    def wire(policy: Policy, entries: Iterable[Register]) -> list[Entry]:
        return [(*event(entry[0]), entry[1], entry[2]) for entry in sorted(entries, key=policy.rank)]

    def cell_wire(cell: Cell) -> tuple[Event | None, list[Entry], list[Entry]]:
        floor = event(cell.floor) if cell.floor is not None else None
        return floor, wire(cell.policy, cell.best.values()), wire(cell.policy, cell.entries.values())

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
    shared = [(priority, source, SpecRef(name, version)) for priority, source, name, version in makers]
    cell = Cell(POLICIES[ReconciliationPolicy(policy)])
    cell.floor = _origin(shared, *floor) if floor is not None else None
    cell.keep((_register(shared, entry) for entry in kept), (_register(shared, entry) for entry in best))
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
