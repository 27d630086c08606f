"""Entries of timelines as events would leave them today: ids of events hashed, no value that policy protects by now, and nothing that
no activity counts.

A field is looked at by the path that the activity reads today. Where it says none, the field goes. Entries that a later version of
their activity made than the snapshot has, or one that it does not know, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from idgraph.model import paths
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.timelines import ActivityEntries, Entry, PageKey, Pages, TimelineChange, made_by_version
from merge.page_codec import encode_page, read_page
from transforms.behaviour.activities import open_values
from transforms.behaviour.windows import leaves_of
from transforms.privacy.keys import NotPicklable
from transforms.privacy.protected_names import StoredNames
from transforms.privacy.stored_values import StoredValues
from transforms.spec.mapping import CompiledSnapshot

_UNBOUNDED = 1_000_000
"""Days to keep, and entries: the next event that leaves one bounds them."""


class StoredTimelines(NotPicklable):
    """Rewrites entries under one snapshot. One per thread."""

    def __init__(self, snapshot: CompiledSnapshot, values: StoredValues, names: StoredNames) -> None:
        self._known = {each.name: each for each in snapshot.snapshot.activities}
        self._in_force = {each.name for each in snapshot.attributes.activities}
        self._values = values
        self._names = names

    def changed(self, pages: Pages) -> dict[PageKey, bytes]:
        """Those of these pages that are another one today. Raises DamagedStateError."""
        found = {}
        for key, page in pages.items():
            entries = list(self._today(key.activity, read_page(page).entries()))
            found[key] = encode_page(entries) if entries else b""
        return {key: page for key, page in found.items() if page != pages[key]}

    def moved(self, pages: Pages) -> TimelineChange:
        """The entries of all pages, for a fragment of another name. Raises DamagedStateError."""
        entries: dict[str, list[Entry]] = {}
        for key, page in pages.items():
            entries.setdefault(key.activity, []).extend(self._today(key.activity, read_page(page).entries()))
        return {name: ActivityEntries(_UNBOUNDED, _UNBOUNDED, tuple(each)) for name, each in entries.items()}

    def change(self, change: TimelineChange) -> TimelineChange:
        """A change that is yet to be written."""
        return {
            activity: each._replace(entries=tuple(self._today(activity, each.entries)))
            for activity, each in change.items()
        }

    def _today(self, activity: str, entries: Iterable[Entry]) -> Iterator[Entry]:
        known = self._known.get(activity)
        newest = made_by_version(known.generation, known.version) if known else 0
        for each in entries:
            if known is None or each.made_by[0] > newest:
                # Made under a later snapshot: nothing here knows what that one says.
                yield each
                continue
            if activity not in self._in_force or each.generation < known.generation:
                continue
            places = known.fields
            stamp = Stamp(0, each.time, each.source, each.event_id)
            origin = self._names.origin(Origin(stamp, SpecRef(*each.made_by[1:])))
            fields = {
                name: shown
                for name, value in each.fields.items()
                if name in places and (shown := self._shown(places[name], value, origin)) is not None
            }
            yield each._replace(event_id=origin.stamp.event_id, fields=fields)

    def _shown(self, path: str, value: Any, origin: Origin) -> Any:
        """The part of a value at a path that policy shows; None for nothing."""
        keys = paths.split(path)
        leaves = ((each, Register(origin, Kind.PLAIN, leaf)) for each, leaf in leaves_of(value, *keys))
        protected = [each.path for each in self._values.stale(leaves)]
        if not protected:
            return value
        tree = value
        for key in reversed(keys):
            tree = {key: tree}
        return paths.value_at(open_values(tree, protected), keys) or None
