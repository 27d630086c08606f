"""Finds stored data that differs from an event mapped today: values in the clear, tokens, names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from idgraph.jobs.reencrypt.stored_timelines import StoredTimelines
from idgraph.model import canonical, paths
from idgraph.model.errors import DamagedStateError
from idgraph.model.jobs import Progress
from idgraph.model.store import NO_PAGES, StoredFragment
from idgraph.model.timelines import Pages
from idgraph.model.tombstones import NO_EPOCH
from ingestion.spark.workers import WorkerResources
from merge.fragments import FragmentState
from transforms.privacy.keys import NotPicklable
from transforms.privacy.protected_names import StoredNames
from transforms.privacy.stored_values import StaleValue, StoredValues

PATH = "path"
"""Stands for keys of paths where types of names are reported."""


def fail(progress: Progress, shown_name: str) -> None:
    """Count a fragment that keeps values in the clear, named as it may be shown."""
    progress.counts["failed"] += 1
    progress.note("failed", [shown_name])


class StaleFragment(NamedTuple):
    """A fragment with something to reseal: `todo` of its values, `types` of its names, and `pages` of its timelines, as they
    are today; `name` is its id today, and `erasure_epoch` the `until` of the tombstone that it was read beside."""

    stored: StoredFragment
    state: FragmentState
    erasure_epoch: int
    todo: list[StaleValue]
    name: str
    types: set[str]
    pages: Pages

    @property
    def is_stale(self) -> bool:
        """Whether there is something to reseal."""
        return bool(self.todo or self.types or self.pages)


def marks_of(changed: Collection[str]) -> list[bytes]:
    """The bytes in a fragment's state that show that it may have a value at one of these paths, below or
    above it."""
    below = [canonical.encode(path)[:-1] for path in changed]
    above = {ancestor for path in changed for ancestor in paths.ancestors(path)}
    return [*below, *(canonical.encode(each) + b":" for each in sorted(above))]


class StaleSearch(NotPicklable):
    """Looks through fragments under one snapshot. One per thread."""

    def __init__(
        self,
        resources: WorkerResources,
        values: StoredValues,
        names: StoredNames,
        timelines: StoredTimelines,
        on_readable: Callable[[str, set[str]], None] | None = None,
        marks: Sequence[bytes] | None = None,
    ) -> None:
        """Fragments without any of the `marks` (`marks_of`) are as they should be. `on_readable` is given the id, as it is
        stored, of each fragment with names in the clear, and their types."""
        self._store = resources.store
        self._data_keys = resources.data_keys
        self._values = values
        self._names = names
        self._timelines = timelines
        self._on_readable = on_readable
        self._marks = marks

    def find(self, found: Sequence[StoredFragment], progress: Progress) -> list[StaleFragment]:
        """Those of these fragments with something to reseal; damaged ones, and keys in the clear, are counted."""
        if self._marks is not None:
            found = [each for each in found if any(mark in each.state for mark in self._marks)]
        stale, damaged = self._stale_and_damaged(found)
        for fragment_id in damaged:
            fail(progress, self._names.identifier(fragment_id))
        return [each for each in stale if self._is_stale(each, progress)]

    def find_again(self, ids: Sequence[str]) -> list[StaleFragment]:
        """The same of fragments that were counted before, and have changed since."""
        stale, _ = self._stale_and_damaged(list(self._store.read(ids).values()))
        return [each for each in stale if each.is_stale]

    def types(self, fragment_id: str, state: FragmentState) -> set[str]:
        """The types of names that are written otherwise today."""
        origins = {id(origin): origin for origin in state.origins()}
        return self._names.readable({fragment_id, *state.carried()}, origins.values())

    def _is_stale(self, each: StaleFragment, progress: Progress) -> bool:
        readable = set(each.types)
        if self._values.shows_in_keys(each.state.registers):
            progress.count("readable", [PATH])
            readable.add(PATH)
        if readable and self._on_readable:
            self._on_readable(each.stored.id, readable)
        return each.is_stale

    def _stale_and_damaged(self, found: Sequence[StoredFragment]) -> tuple[list[StaleFragment], list[str]]:
        # After they were read: a tombstone that comes later is refused by the write. Those few that have one
        # were erased and came back, perhaps in between, so they are read again.
        epochs = {name: each.until for name, each in self._store.tombstones(f.id for f in found).items()}
        self._data_keys.forget(epochs)
        again = self._store.read(list(epochs)) if epochs else {}
        # Behind the fragments, whose versions a write expects.
        timelines = self._store.timelines([each.id for each in found])
        stale: list[StaleFragment] = []
        damaged: list[str] = []
        for each in found:
            stored = again.get(each.id) if each.id in epochs else each
            if stored is None:
                continue
            try:
                state = FragmentState.decode(stored.state)
                pages = self._timelines.changed(timelines.get(stored.id, NO_PAGES))
            except DamagedStateError:
                damaged.append(stored.id)
                continue
            until = epochs.get(stored.id, NO_EPOCH)
            todo, types = self._values.stale(state.stored()), self.types(stored.id, state)
            name = self._names.identifier(stored.id)
            stale.append(StaleFragment(stored, state, until, todo, name, types, pages))
        return stale, damaged
