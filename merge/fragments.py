"""The state of a fragment: a join-semilattice of registers.

`join` is commutative, associative and idempotent, so the order, the duplication and the batching of events cannot
show in the result (law 1). Four things are joined: registers by path (the later one wins), snapshot markers (the
later one wins), the identifiers seen (the earliest event is kept), and identifiers shown together (the earliest and
the latest event are kept). If a source can take events back, each event is kept, and so is its retraction, whichever
comes first.

The values that a profile shows are a function of the joined state:

- **Leaf against subtree.** If one register's path is a prefix of another's, only the later one shows.
  Writing `a` replaces everything older below `a`; writing `a.b` replaces an older leaf at `a`.
- **Snapshots.** A marker (source, scope, stamp) hides earlier values of the same source below the scope.

Entries of policies other than `latest` stand beside the registers, in cells (`merge.cells`). The register of such a
path is there as well, and holds the last written value: it decides between leaf and subtree, and shows once the
policy is `latest` again.

`normalise` drops registers that can never show again. It removes only those that the remaining state would hide anyway,
so joining normalised states gives the same as joining the originals.

A state that was read from bytes stays bytes until its content is asked for. Most fragments of a batch are new or
have few parts: their join and their identifiers are read from the bytes (native/states.c).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Self, TypeGuard

from idgraph import native
from idgraph.model import paths
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.stamps import Stamp
from idgraph.model.timelines import NO_CHANGE, TimelineChange
from idgraph.model.tombstones import NO_EPOCH
from merge import codec, timelines
from merge.cells import Cell, Removals
from merge.identity.evidence import ShownTogether, evidence_of, is_of_one_event, read_key
from merge.policies import POLICIES
from merge.policies.policy import tie_break

_FEW = 100
_Named = tuple[frozenset[str], tuple[int, str, str] | None]


class FragmentState:
    """Mutable while it is being joined; not safe for several threads.

    `registers` by attribute path, `cells` by path and policy, `markers` by (source, scope), `identifiers` by
    text form.
    """

    __slots__ = ("_evidence", "_named", "_newest", "_parts", "encoded", "erasure_epoch", "timeline")

    def __init__(self, encoded: bytes | None = None) -> None:
        """An empty state, or that of bytes which `encode` gave: they are not checked, and decoded when first needed."""
        self._parts = codec.Parts() if encoded is None else None
        self.encoded = encoded
        """The bytes of the normalised state, until it changes."""
        self.erasure_epoch = NO_EPOCH
        """The `until` of the tombstone that the events of a change were compared with."""
        self.timeline: TimelineChange = NO_CHANGE
        """The entries that the events of a change leave. They are no part of the state."""
        # The parts of these bytes that were read.
        self._evidence: tuple[bytes, codec.StoredEvidence] | None = None
        self._named: tuple[bytes, str, _Named | None] | None = None
        # No register is later than this one; None when that is not known.
        self._newest: Origin | None = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The state of these bytes, wholly read. Raises DamagedStateError for bytes that `encode` did not write,
        StoreError for those of a later format."""
        state = cls(data)
        state._parts = codec.decode(data)
        return state

    @classmethod
    def checked(cls, data: bytes) -> Self:
        """As `decode`. But where only the checksum fits, DamagedStateError may come when the content is asked for."""
        if native.states is None or data[:1] != codec.FORMAT:
            return cls.decode(data)
        codec.check(data)
        return cls(data)

    def encode(self) -> bytes:
        """Canonical bytes of a normalised state."""
        return codec.encode(self._content) if self.encoded is None else self.encoded

    @classmethod
    def of_change(cls, data: bytes) -> Self:
        """The change of `change_bytes`. Raises as `checked` does."""
        if data[:1] != timelines.CHANGE:
            return cls.checked(data)
        timeline, state = timelines.split_change(data)
        change = cls.checked(state)
        change.timeline = timeline
        return change

    def change_bytes(self) -> bytes:
        """The bytes of `encode`, of a change with its `timeline`."""
        return timelines.with_change(self.timeline, self.encode())

    @property
    def _content(self) -> codec.Parts:
        if self._parts is None:
            # Without bytes a state has its parts.
            self._parts = codec.decode(self.encoded or b"")
        return self._parts

    @property
    def registers(self) -> dict[str, Register]:
        return self._content.registers

    @property
    def cells(self) -> dict[str, dict[ReconciliationPolicy, Cell]]:
        return self._content.cells

    @property
    def markers(self) -> dict[tuple[str, str], Stamp]:
        return self._content.markers

    @property
    def identifiers(self) -> dict[str, Origin]:
        return self._content.identifiers

    @property
    def sightings(self) -> dict[str, tuple[Origin, Origin]]:
        """Identifiers that events showed together, by key, with the oldest and the newest event."""
        return self._content.sightings

    def evidence(self) -> codec.StoredEvidence:
        """Identifiers and sightings. They are read from the bytes where the rest is not needed."""
        if self._parts is None and self.encoded is not None:
            if self._evidence is None or self._evidence[0] is not self.encoded:
                self._evidence = self.encoded, codec.evidence(self.encoded)
            return self._evidence[1]
        return codec.StoredEvidence(self.identifiers, self.sightings)

    def apply(self, change: FragmentChange) -> None:
        """Join in what one event asks. Call `normalise` before the state is shown or stored."""
        registers = self.registers
        self.encoded = None
        origin = change.origin
        # Events mostly come in their order: then all of their values win, and none needs to be compared.
        if not registers or (self._newest is not None and self._newest < origin):
            registers.update(change.mutations)
            self._newest = origin
        else:
            self._join_registers(change.mutations)
        if change.policies:
            self._write_cells(change)
        names, sightings = evidence_of(origin, change.identifiers, change.evidence, change.retracts)
        for name in names:
            self._join_identifier(name, origin)
        for key in sightings:
            self._join_sighting(key, origin, origin)
        if change.scope is not None:
            self._join_markers([((origin.stamp.source, change.scope), origin.stamp)])

    def join(self, other: FragmentState) -> bool:
        """Join in another state of the same fragment; returns whether that changed anything."""
        if (quickly := joined_natively((self, other))) is not None:
            if is_new := quickly.encoded != self.encoded:
                self.encoded, self._parts, self._newest = quickly.encoded, None, None
            return is_new
        changed = self._join_registers(other.registers)
        if other.cells:
            changed |= self._join_cells(other)
        for identifier, origin in other.identifiers.items():
            changed |= self._join_identifier(identifier, origin)
        for key, span in other.sightings.items():
            changed |= self._join_sighting(key, *span)
        changed |= self._join_markers(other.markers.items())
        if changed:
            self.encoded = None
            self._newest = None
        return changed

    def names(self) -> frozenset[str]:
        """The identifiers that events showed which are not taken back, text forms alone."""
        return self.names_and_others()[0]

    def carried(self) -> frozenset[str]:
        """`names`, and what only events showed that are taken back."""
        return frozenset().union(*self.names_and_others())

    def names_and_others(self, own: str = "") -> tuple[frozenset[str], frozenset[str]]:
        """`names`, and what only events showed that are taken back. `own` where `named` is asked for it next."""
        if (quickly := self.named(own)) is not None:
            return quickly[0], frozenset()
        names, sightings = frozenset(self.shown()), self.evidence().sightings
        of_events = (read_key(key).others for key in sightings if is_of_one_event(key))
        return names, frozenset().union(*of_events) - names

    def named(self, own: str = "") -> _Named | None:
        """`names`, if no event can be taken back; and of the oldest event that showed one of them ordinal, source and id, if
        the spec of none says which of them it links with `own`. None where only `shown` and `shown_together` say so."""
        if native.states is None or self.encoded is None or self._parts is not None:
            return None
        if self._named is None or self._named[0] is not self.encoded or self._named[1] != own:
            self._named = self.encoded, own, native.states.identifiers(self.encoded, own)
        return self._named[2]

    def shown(self) -> Mapping[str, Origin]:
        """The identifiers that events showed which are not taken back, with the earliest event of each."""
        evidence = self.evidence()
        if not any(map(is_of_one_event, evidence.sightings)):
            return evidence.identifiers
        found = dict(evidence.identifiers)
        for together, oldest, _ in self.shown_together():
            for each in together.others if together.event_id is not None else ():
                found[each] = min(oldest, found.get(each, oldest))
        return found

    def taken_back(self) -> set[tuple[str, str]]:
        """Source and id of the events that other events take back."""
        keys = self.evidence().sightings
        return _taken_back(map(read_key, filter(is_of_one_event, keys))) if keys else set()

    def shown_together(self) -> Iterator[tuple[ShownTogether, Origin, Origin]]:
        """Identifiers that events showed together and that are not taken back, with the oldest and the newest event."""
        read = [(read_key(key), span) for key, span in self.evidence().sightings.items()]
        taken_back = _taken_back(each for each, _ in read)
        for each, (oldest, newest) in read:
            if (each.source, each.event_id) not in taken_back:
                yield each, oldest, newest

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

    def _write_cells(self, change: FragmentChange) -> None:
        for path in change.mutations.keys() & change.policies.keys():
            cell = self.cell(path, change.policies[path].policy)
            cell.write(change.mutations[path], change.entries.get(path))

    def _join_cells(self, other: FragmentState) -> bool:
        changed = False
        for path, cells in other.cells.items():
            for policy, cell in cells.items():
                changed |= self.cell(path, policy).join(cell)
        return changed

    def cell(self, path: str, policy: ReconciliationPolicy) -> Cell:
        """The cell of a policy at a path; a new one if there was none."""
        cells = self.cells.setdefault(path, {})
        if policy not in cells:
            cells[policy] = Cell(POLICIES[policy])
        return cells[policy]

    def _join_identifier(self, identifier: str, origin: Origin) -> bool:
        mine = self.identifiers.get(identifier)
        if mine is not None and mine <= origin:
            return False
        self.identifiers[identifier] = origin
        return True

    def _join_sighting(self, key: str, oldest: Origin, newest: Origin) -> bool:
        mine = self.sightings.get(key)
        span = (oldest, newest) if mine is None else (min(mine[0], oldest), max(mine[1], newest))
        if mine == span:
            return False
        self.sightings[key] = span
        return True

    def _join_markers(self, markers: Iterable[tuple[tuple[str, str], Stamp]]) -> bool:
        changed = False
        for place, stamp in markers:
            mine = self.markers.get(place)
            if mine is None or stamp > mine:
                self.markers[place] = stamp
                changed = True
        return changed

    def stored(self) -> Iterator[tuple[str, Register]]:
        """All registers with their paths, and all entries of cells that hold something of a value."""
        yield from self.registers.items()
        for path, cells in self.cells.items():
            for cell in cells.values():
                if cell.policy.keeps_values:
                    yield from ((path, entry) for entry in (*cell.entries.values(), *cell.best.values()))

    def origins(self) -> Iterator[Origin]:
        """The origins of all that is there; the values of one event mostly share one, the very object."""
        yield from (register[0] for register in self.registers.values())
        yield from self.identifiers.values()
        for span in self.sightings.values():
            yield from span
        for cells in self.cells.values():
            for cell in cells.values():
                yield from cell.origins()

    def reseal(self, resealed: Sequence[tuple[str, Register, Register]]) -> None:
        """Write the registers of `stored` in another form: each path, the very register, and the one that takes its
        place under the same origin. The same registers show, and the state stays normalised."""
        forms = {id(old): new for _, old, new in resealed}

        def form(register: Register) -> Register:
            return forms.get(id(register), register)

        for path in {path for path, _, _ in resealed}:
            self.registers[path] = form(self.registers[path])
            cells = self.cells.pop(path, {})
            self.put_cells(path, {policy: cell.rewritten(form) for policy, cell in cells.items()})
        self.encoded = None

    def put_cells(self, path: str, cells: Mapping[ReconciliationPolicy, Cell]) -> None:
        """Have these for the cells of a path, but for those that keep nothing."""
        if kept := {policy: cell for policy, cell in cells.items() if cell.keeps_anything}:
            self.cells[path] = kept

    def normalise(self) -> None:
        """Drop what can never show again; idempotent."""
        if self.encoded is not None:
            return
        if self.markers:
            self._delete_what_snapshots_hide()
        self._drop_what_ancestors_hide()
        if self.cells:
            self._normalise_cells()

    def _normalise_cells(self) -> None:
        self.encoded = None
        for path, cells in list(self.cells.items()):
            removals = self.removals(path)
            kept = {policy: cell for policy, cell in cells.items() if cell.normalise(removals)}
            if kept:
                self.cells[path] = kept
            else:
                del self.cells[path]

    def removals(self, path: str) -> Removals:
        """The removals of entries from the cells of a path, beside their own nulls."""
        above = [self.registers[each].origin for each in paths.ancestors(path) if each in self.registers]
        snapshots: dict[str, Stamp] = {}
        for (source, scope), stamp in self.markers.items():
            if paths.is_within(path, scope):
                snapshots[source] = max(stamp, snapshots.get(source, stamp))
        return Removals(max(above, default=None), snapshots)

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


def _taken_back(together: Iterable[ShownTogether]) -> set[tuple[str, str]]:
    return {
        (each.source, each.event_id) for each in together if each.event_id is not None and each.is_retraction
    }


def join_all(states: Sequence[FragmentState]) -> FragmentState:
    """The join of at least one state of a fragment, normalised. None of several is changed."""
    first, *others = states
    if not others:
        return first
    if (joined := joined_natively(states)) is not None:
        return joined
    whole = FragmentState.decode(first.encode())
    # Joined as objects, so that each of the others costs its own size and not the size of the whole.
    whole.encoded = None
    for other in others:
        whole.join(other)
    whole.normalise()
    return whole


def joined_natively(states: Sequence[FragmentState]) -> FragmentState | None:
    """`join_all` on the bytes of the states; None where native code does not join them, as where one has markers."""
    encoded = [each.encoded for each in states]
    if native.states is None or not all(map(_is_common, encoded)):
        return None
    body = native.states.join_all(tuple(codec.body(each) for each in encoded if each is not None))
    return None if body is None else FragmentState(codec.framed(body))


def _is_common(encoded: bytes | None) -> TypeGuard[bytes]:
    # States that native code joins have no cells.
    return encoded is not None and encoded[:1] == codec.FORMAT


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
