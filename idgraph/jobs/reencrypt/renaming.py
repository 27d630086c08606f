"""Moves fragments under names that policy protects by now to the names that today's events have.

A fragment whose id becomes a keyed hash is joined to the fragment of that id. Then it is withdrawn if its
version is still the one that was read. The next try moves a flow's writes in between. A crash in between
leaves both, and joining again changes nothing. Events that were mapped under the older policy and written
afterwards make the old fragment again, for the next run to move. A fragment of which only other names change
is rewritten in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.jobs.reencrypt.stale import StaleFragment
from idgraph.jobs.reencrypt.stored_timelines import StoredTimelines
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import KeyProviderError, KeyServiceError, SealError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord
from idgraph.model.stamps import Stamp
from idgraph.model.store import NO_PAGES, FragmentWrite
from idgraph.projection.projection import Projection
from ingestion.spark.workers import WorkerResources
from ingestion.stages.commit import CommitStage
from ingestion.stages.map_output import EncodedChange
from merge.cells import Cell
from merge.fragments import FragmentState
from merge.identity.evidence import ShownTogether, read_key
from transforms.privacy.keys import NotPicklable
from transforms.privacy.protected_names import StoredNames
from transforms.privacy.sealing import SealingKey
from transforms.privacy.stored_values import StoredValues

Keys = tuple[SealingKey | None, SealingKey | None]
"""The keys of the fragment that a register is in, and of the one that it goes to."""
_TIMELINES_AT_ONCE = 50


@dataclass(slots=True)
class Renamed:
    """The result for some fragments, by the ids that they had: `moved_on` were written meanwhile; `failed` have a
    value that cannot be opened, or a damaged fragment under the new name. `values` that were sealed, by path."""

    done: set[str] = field(default_factory=set)
    moved_on: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    values: Counter[str] = field(default_factory=Counter)


class Renaming(NotPicklable):
    """Renames under one snapshot. One per thread; several may run at once. Raises the errors of the
    stores."""

    def __init__(
        self,
        resources: WorkerResources,
        values: StoredValues,
        names: StoredNames,
        timelines: StoredTimelines,
        projection: Projection,
    ) -> None:
        self._store = resources.store
        self._data_keys = resources.data_keys
        self._orphaned_keys = resources.orphaned_keys()
        self._projection = projection
        self._values = values
        self._names = names
        self._timelines = timelines
        guard = resources.key_guard()
        self._commit = CommitStage(resources.store, guard=guard, gives_up=True)
        self._left: set[str] = set()

    def rename(self, found: Sequence[StaleFragment]) -> Renamed:
        """Rename fragments, each page of them durable in the store when it returns."""
        result = Renamed()
        moving = (each.stored for each in found if each.name != each.stored.id)
        self._left |= {self._names.identifier(each.projected_into) for each in moving}
        self._rename_pins(found)
        states = self._states(found, result)
        ready = [each for each in found if each.stored.id in states]
        self._move([each for each in ready if each.name != each.stored.id], states, result)
        self._write([each for each in ready if each.name == each.stored.id], states, result)
        for each in ready:
            if each.stored.id in result.done:
                result.values.update(_sealed_paths(each.state, states[each.stored.id]))
        return result

    def _rename_pins(self, found: Sequence[StaleFragment]) -> None:
        """Rename pins before the fragments, which are found again after a crash, while their pins would not
        be."""
        names = {name for each in found for name in (each.stored.id, *each.state.carried())}
        stale = sorted(each for each in names if self._names.identifier(each) != each)
        renamed: list[PinRecord] = []
        for pin in self._store.pins_of(stale):
            low, high = sorted(Identifier.parse(self._names.identifier(each)) for each in (pin.low, pin.high))
            renamed.append(pin._replace(low=str(low), high=str(high)))
        if renamed:
            self._store.add_pins(renamed)
            self._store.drop_pins(stale)

    def renamed_change(self, fragment_id: str, change: FragmentState) -> tuple[str, FragmentState]:
        """A change that is yet to be written, with the fragment that it is for today. Raises SealError or
        KeyProviderError when a value cannot be sealed: it must not be written then."""
        name = self._names.identifier(fragment_id)
        before = self._data_keys.fetch([fragment_id], create=False)
        # Another process may have erased the one that is cached.
        self._data_keys.forget(self._store.tombstones([name]))
        after = self._data_keys.fetch([name], create=True)
        return name, self._renamed(change, (before.get(fragment_id), after[name]))

    def settle(self) -> None:
        """Remove withdrawn fragments from the index and the data keys. A value that an event brought
        meanwhile, sealed by such a key, is refused when it is written (see `KeyGuard`), and mapped again. A
        dead letter under the old name keeps its key until it is renamed."""
        withdrawn = self._store.withdrawn()
        if withdrawn:
            self._projection.project(withdrawn)
            # The profiles that they were a part of, by these rules and by those of before: their documents need a later version.
            renamed = {self._names.identifier(each) for each in withdrawn}
            self._projection.project(renamed | self._left, has_lost=True)
            self._left.clear()
            self._orphaned_keys.erase(withdrawn)
            self._store.forget_withdrawn(list(withdrawn))

    def _states(self, found: Sequence[StaleFragment], result: Renamed) -> dict[str, FragmentState]:
        sealed = [
            each
            for each in found
            if each.todo or any(one.kind is Kind.SEALED for _, one in each.state.stored())
        ]
        before = self._data_keys.fetch([each.stored.id for each in sealed], create=False)
        after = self._data_keys.fetch({each.name for each in sealed}, create=True)
        states: dict[str, FragmentState] = {}
        for each in found:
            keys = before.get(each.stored.id), after.get(each.name)
            try:
                state = self._renamed(each.state, keys)
            except KeyServiceError:
                # All the others would fail too, and count as looked at.
                raise
            except (SealError, KeyProviderError):
                result.failed.add(each.stored.id)
                continue
            state.erasure_epoch = each.erasure_epoch
            states[each.stored.id] = state
        # Another run may have moved them, and taken their keys away, since they were read.
        versions = self._store.read(list(result.failed)) if result.failed else {}
        read = {each.stored.id: each.stored.version for each in found}
        changed = {n for n in result.failed if n not in versions or versions[n].version != read[n]}
        result.failed -= changed
        result.moved_on |= changed
        return states

    def _renamed(self, state: FragmentState, keys: Keys) -> FragmentState:
        renamed = FragmentState()
        origins = _Renamed(self._names.origin)
        stamps: dict[Stamp, Stamp] = {}
        for path, register in state.registers.items():
            origin = origins[register.origin]
            stamps[register.stamp] = origin.stamp
            renamed.registers[path] = self._values.renamed(keys, path, register, origin)
        for path, cells in state.cells.items():
            renamed.put_cells(path, {each: self._cell(keys, path, cells[each], origins) for each in cells})
        for text, evidence in state.identifiers.items():
            name, origin = self._names.identifier(text), origins[evidence]
            stamps[evidence.stamp] = origin.stamp
            # Stored under both names, it is kept by the earlier evidence, as any identifier is.
            renamed.identifiers[name] = min(origin, renamed.identifiers.get(name, origin))
        for key, (oldest, newest) in state.sightings.items():
            renamed_key = self._renamed_together(read_key(key), oldest).key()
            stamps[oldest.stamp], stamps[newest.stamp] = origins[oldest].stamp, origins[newest].stamp
            span = renamed.sightings.get(renamed_key, (origins[oldest], origins[newest]))
            renamed.sightings[renamed_key] = min(origins[oldest], span[0]), max(origins[newest], span[1])
        for (source, scope), stamp in state.markers.items():
            renamed.markers[source, scope] = stamps.get(stamp) or self._names.marker(scope, stamp)
        renamed.erasure_epoch = state.erasure_epoch
        renamed.timeline = state.timeline
        renamed.normalise()
        return renamed

    def _renamed_together(self, shown: ShownTogether, origin: Origin) -> ShownTogether:
        event_id = shown.event_id
        if event_id is not None:
            # The origin of a retraction names another event, mapped by a spec of the same source.
            event = origin._replace(stamp=origin.stamp._replace(event_id=event_id))
            event_id = self._names.origin(event).stamp.event_id
        others = tuple(sorted({self._names.identifier(each) for each in shown.others}))
        return shown._replace(others=others, event_id=event_id)

    def _cell(self, keys: Keys, path: str, cell: Cell, origins: Mapping[Origin, Origin]) -> Cell:
        def form(entry: Register) -> Register:
            return self._values.renamed(keys, path, entry, origins[entry.origin])

        return cell.rewritten(form, origins.__getitem__)

    def _move(
        self, found: Sequence[StaleFragment], states: dict[str, FragmentState], result: Renamed
    ) -> None:
        """Move to fragments of other ids. A fragment that a tombstone refuses there belongs to somebody who
        was erased."""
        try:
            committed = self._commit.run(self._changes(found, states))
        finally:
            # Also after a failure: fragments that are gone by the next run are not looked at again.
            self._orphaned_keys.erase(self._commit.refused)
            self._commit.refused.clear()
        kept_changing = {
            each.fragment_id for each in committed.failed if each.reason is DeadLetterReason.CONFLICT
        }
        failed = {each.fragment_id for each in committed.failed} - kept_changing
        result.failed.update(each.stored.id for each in found if each.name in failed)
        # Or its key was erased since: it is resealed by the next try.
        result.moved_on.update(each.stored.id for each in found if each.name in kept_changing)
        gone = {e.stored.id: e.stored.version for e in found if e.name not in failed | kept_changing}
        moved_on = self._store.withdraw(gone)
        result.moved_on |= moved_on
        result.done |= gone.keys() - moved_on

    def _changes(
        self, found: Sequence[StaleFragment], states: Mapping[str, FragmentState]
    ) -> Iterator[EncodedChange]:
        """The changes to fragments of other ids. Timelines are read a few at a time, and behind their fragments: where one
        is written since, the old fragment stays for the next try."""
        for start in range(0, len(found), _TIMELINES_AT_ONCE):
            some = found[start : start + _TIMELINES_AT_ONCE]
            timelines = self._store.timelines([each.stored.id for each in some])
            for each in some:
                state = states[each.stored.id]
                state.timeline = self._timelines.moved(timelines.get(each.stored.id, NO_PAGES))
                yield each.name, state.change_bytes(), each.erasure_epoch

    def _write(
        self, found: Sequence[StaleFragment], states: dict[str, FragmentState], result: Renamed
    ) -> None:
        """Rewrite fragments in their places."""
        if not found:
            return
        refused = self._store.write([_write_of(each, states[each.stored.id]) for each in found])
        if tombstoned := self._store.tombstones(refused):
            self._orphaned_keys.erase(tombstoned)
        result.moved_on |= refused
        result.done.update(each.stored.id for each in found if each.stored.id not in refused)


class _Renamed(dict[Origin, Origin]):
    """Renamed origins, each once: the values of one event share theirs."""

    def __init__(self, rename: Callable[[Origin], Origin]) -> None:
        super().__init__()
        self._rename = rename

    def __missing__(self, origin: Origin) -> Origin:
        renamed = self[origin] = self._rename(origin)
        return renamed


def _write_of(each: StaleFragment, state: FragmentState) -> FragmentWrite:
    identifiers = state.names()
    dropped = each.state.names() - identifiers - {each.stored.id}
    version = each.stored.version
    return FragmentWrite(
        each.stored.id, version, state.encode(), identifiers, each.erasure_epoch, dropped, each.pages
    )


def _sealed_paths(before: FragmentState, after: FragmentState) -> Iterable[str]:
    found: dict[str, Register] = before.registers
    return (
        path
        for path, register in after.registers.items()
        if register.kind is Kind.SEALED and found[path].kind is Kind.PLAIN
    )
