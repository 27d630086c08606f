"""The state of a fragment: a join-semilattice of registers.

`join` is commutative, associative and idempotent, so the order, the duplication and the batching of events
cannot show in the result (law 1). Three things are joined: registers by path (the later one wins),
snapshot markers (the later one wins), and the identifiers seen (the earliest evidence is kept).

What a profile shows is a function of the joined state:

- **Leaf against subtree.** Of two registers where one path is a prefix of the other, only the later one
  shows. Writing `a` replaces everything older below `a`; writing `a.b` replaces an older leaf at `a`.
- **Snapshots.** A marker (source, scope, stamp) hides what the same source set earlier below the scope.

`normalise` drops what can never show again. It removes only what the remaining state would hide anyway,
so joining normalised states gives the same as joining the originals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from merge.registers import tie_break
from merge.tombstones import UNJUDGED
from model import paths
from model.fragments import FragmentChange, Kind, Origin, Register
from model.stamps import Stamp

_FEW = 100


class FragmentState:
    """Mutable while it is being joined; not safe for several threads.

    `registers` by attribute path, `markers` by (source, scope), `identifiers` by text form.
    """

    __slots__ = ("_newest", "encoded", "identifiers", "judged", "markers", "registers")

    def __init__(self) -> None:
        self.registers: dict[str, Register] = {}
        self.markers: dict[tuple[str, str], Stamp] = {}
        self.identifiers: dict[str, Origin] = {}
        self.judged = UNJUDGED
        """What the events of a change were judged by: the `until` of their fragment's tombstone."""
        self.encoded: bytes | None = None
        """The bytes that `merge.codec` read this state from, until it changes."""
        # No register is later than this one; None when that is not known.
        self._newest: Origin | None = None

    def apply(self, change: FragmentChange) -> None:
        """Join in what one event asks. Call `normalise` before the state is shown or stored."""
        self.encoded = None
        origin = change.origin
        # Events mostly come in their order: then all of their values win, and none needs to be compared.
        if not self.registers or (self._newest is not None and self._newest < origin):
            self.registers.update(change.mutations)
            self._newest = origin
        else:
            self._join_registers(change.mutations)
        for kind, value in change.identifiers:
            self._join_identifier(f"{kind}:{value}", origin)
        if change.scope is not None:
            self._join_markers([((origin.stamp.source, change.scope), origin.stamp)])

    def join(self, other: FragmentState) -> bool:
        """Join in another state of the same fragment; gives whether that changed anything."""
        changed = self._join_registers(other.registers)
        for identifier, origin in other.identifiers.items():
            changed |= self._join_identifier(identifier, origin)
        changed |= self._join_markers(other.markers.items())
        if changed:
            self.encoded = None
            self._newest = None
        return changed

    def names(self) -> frozenset[str]:
        """The identifiers, text forms alone."""
        return frozenset(self.identifiers)

    def _join_registers(self, others: Mapping[str, Register]) -> bool:
        changed = False
        registers = self.registers
        for path, register in others.items():
            mine = registers.get(path)
            # Most are decided by their origin alone; only then is it worth a call.
            if (
                mine is None
                or mine[0] < register[0]
                or (mine[0] == register[0] and tie_break(register) > tie_break(mine))
            ):
                registers[path] = register
                changed = True
        return changed

    def _join_identifier(self, identifier: str, origin: Origin) -> bool:
        mine = self.identifiers.get(identifier)
        if mine is not None and mine <= origin:
            return False
        self.identifiers[identifier] = origin
        return True

    def _join_markers(self, markers: Iterable[tuple[tuple[str, str], Stamp]]) -> bool:
        changed = False
        for place, stamp in markers:
            mine = self.markers.get(place)
            if mine is None or stamp > mine:
                self.markers[place] = stamp
                changed = True
        return changed

    def restate(self, registers: Mapping[str, Register]) -> None:
        """Write registers that are there in another form, each under the origin it has: which of them show
        stays the same, and the state stays normalised."""
        self.registers.update(registers)
        self.encoded = None

    def normalise(self) -> None:
        """Drop what can never show again; idempotent."""
        if self.markers:
            self._delete_what_snapshots_hide()
        self._drop_what_ancestors_hide()

    def _delete_what_snapshots_hide(self) -> None:
        # The stamp stays, as a delete: an older value of another source must not come back because
        # the value that had replaced it went away, or the order of arrival would show.
        for path, register in self.registers.items():
            if register.kind is not Kind.DELETED and self._is_hidden_by_marker(path, register):
                self.registers[path] = register._replace(kind=Kind.DELETED, value=None)
                self.encoded = None

    def _is_hidden_by_marker(self, path: str, register: Register) -> bool:
        return any(
            source == register.stamp.source and stamp > register.stamp and paths.is_within(path, scope)
            for (source, scope), stamp in self.markers.items()
        )

    def _drop_what_ancestors_hide(self) -> None:
        registers = self.registers
        for path, above in _nested(frozenset(registers)):
            if path in registers and above in registers and _beats(registers[above], registers[path]):
                del registers[path]
                self.encoded = None

    def visible(self) -> list[tuple[str, Register]]:
        """The registers that show, deleted ones left out. The state must be normalised."""
        replaced = self.replaced()
        return [
            (path, register)
            for path, register in self.registers.items()
            if register[1] is not Kind.DELETED and path not in replaced
        ]

    def replaced(self) -> set[str]:
        """The paths whose leaf does not show, because a later register lies below it."""
        registers = self.registers
        nested = _nested(frozenset(registers))
        return {above for path, above in nested if not _beats(registers[above], registers[path])}


def _nested(present: frozenset[str]) -> tuple[tuple[str, str], ...]:
    # The sets themselves are what is remembered, so only small ones are.
    return _nested_of_few(present) if len(present) <= _FEW else _find_nested(present)


@lru_cache(maxsize=4096)
def _nested_of_few(present: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return _find_nested(present)


def _find_nested(present: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The pairs (path, ancestor) among some paths: hardly ever any, and most fragments of a source have
    the same paths, so it is worth remembering. The deepest paths come first."""
    pairs = ((path, above) for path in present for above in paths.ancestors(path) if above in present)
    return tuple(sorted(pairs, key=lambda pair: (-len(paths.ancestors(pair[0])), pair)))


def _beats(above: Register, below: Register) -> bool:
    # One event never writes a leaf and something below it. Two spec versions of one event may: the newer
    # one wins, and a careless source that reuses event ids gets the leaf. The values must not decide,
    # since a snapshot marker may have taken one away.
    return above.origin >= below.origin
