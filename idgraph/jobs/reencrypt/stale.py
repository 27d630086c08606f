"""Finding what is stored otherwise than an event mapped today would have it: values in the clear, tokens, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from idgraph.model.errors import DamagedStateError
from idgraph.model.store import StoredFragment
from idgraph.model.tombstones import UNJUDGED
from ingestion.spark.workers import WorkerResources
from merge import codec
from merge.fragments import FragmentState
from transforms.privacy.not_picklable import KeyHolder
from transforms.privacy.stored_names import StoredNames
from transforms.privacy.stored_values import OutdatedValue, StoredValues

SHOWN = 5
"""How many fragments are named where more may be meant."""

PATH = "path"
"""Stands for keys of paths where types of names are told."""


@dataclass(slots=True)
class SealingProgress:
    """How far it is. `total` fragments there were at the start; `values` by attribute that were sealed, or got
    another token or none; `renamed` fragments by type of a name that is a keyed hash now, `event` for ids of events;
    `readable` ones with keys in the clear that look sensitive, as `path`: those stay.

    `after` is the id of the last fragment that was looked at, as it is stored.

    `letters` of fragments keep a name in the clear: they cannot be read. `failed` fragments have a damaged state, an unusable key or a value that cannot be opened, and keep what they
    have in the clear; the first are in `named`.
    """

    total: int
    looked_at: int = 0
    after: str = ""
    letters: int = 0
    fragments: int = 0
    failed: int = 0
    named: list[str] = field(default_factory=list)
    values: Counter[str] = field(default_factory=Counter)
    renamed: Counter[str] = field(default_factory=Counter)
    readable: Counter[str] = field(default_factory=Counter)

    def fail(self, shown_name: str) -> None:
        """Count a fragment, named as it may be told."""
        self.failed += 1
        if len(self.named) < SHOWN:
            self.named.append(shown_name)


class OutdatedFragment(NamedTuple):
    """A fragment with something to restate: `todo` of its values, `types` of its names; `name` is its id
    today, and `judged` the `until` of the tombstone that it was read beside."""

    stored: StoredFragment
    state: FragmentState
    judged: int
    todo: list[OutdatedValue]
    name: str
    types: set[str]


class OutdatedSearch(KeyHolder):
    """Looks through fragments under one snapshot. One per thread."""

    def __init__(
        self,
        resources: WorkerResources,
        values: StoredValues,
        names: StoredNames,
        on_readable: Callable[[str, set[str]], None] | None = None,
    ) -> None:
        """`on_readable` is given the id, as it is stored, of each fragment with names in the clear, and their
        types."""
        self._store = resources.store
        self._data_keys = resources.data_keys
        self._values = values
        self._names = names
        self._on_readable = on_readable

    def find(self, found: Sequence[StoredFragment], progress: SealingProgress) -> list[OutdatedFragment]:
        """Those of these fragments with something to restate; damaged ones, and keys in the clear, are counted."""
        outdated, damaged = self._judged(found)
        for fragment_id in damaged:
            progress.fail(self._names.identifier(fragment_id))
        return [each for each in outdated if self._tell(each, progress)]

    def find_again(self, ids: Sequence[str]) -> list[OutdatedFragment]:
        """The same of fragments that were counted before, and have changed since."""
        outdated, _ = self._judged(list(self._store.read(ids).values()))
        return [each for each in outdated if each.todo or each.types]

    def types(self, fragment_id: str, state: FragmentState) -> set[str]:
        """The types of names that are written otherwise today."""
        origins = {id(origin): origin for origin in state.origins()}
        return self._names.readable({fragment_id, *state.identifiers}, origins.values())

    def _tell(self, each: OutdatedFragment, progress: SealingProgress) -> bool:
        told = set(each.types)
        if self._values.shows_in_keys(each.state.registers):
            progress.readable[PATH] += 1
            told.add(PATH)
        if told and self._on_readable:
            self._on_readable(each.stored.id, told)
        return bool(each.todo or each.types)

    def _judged(self, found: Sequence[StoredFragment]) -> tuple[list[OutdatedFragment], list[str]]:
        # After they were read: a tombstone that comes later is refused by the write. Those few that have one
        # were erased and came back, perhaps in between, so they are read again.
        judged = {name: each.until for name, each in self._store.tombstones(f.id for f in found).items()}
        self._data_keys.forget(judged)
        again = self._store.read(list(judged)) if judged else {}
        outdated: list[OutdatedFragment] = []
        damaged: list[str] = []
        for each in found:
            stored = again.get(each.id) if each.id in judged else each
            if stored is None:
                continue
            try:
                state = codec.decode(stored.state)
            except DamagedStateError:
                damaged.append(stored.id)
                continue
            until = judged.get(stored.id, UNJUDGED)
            todo, types = self._values.outdated(state.stored()), self.types(stored.id, state)
            name = self._names.identifier(stored.id)
            outdated.append(OutdatedFragment(stored, state, until, todo, name, types))
        return outdated, damaged
