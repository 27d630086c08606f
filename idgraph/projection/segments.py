"""Segments of profiles: what the projected profiles enter and leave is appended to the feed of changes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from idgraph.model import canonical
from idgraph.model.index import IndexDocument, IndexRules, ProfileIndex
from idgraph.model.ledger import CHANGES, Crossing
from idgraph.model.queries import leaves
from idgraph.model.store import ProfileStore
from idgraph.projection.behaviour import behaviour_now
from idgraph.projection.documents import documents_of
from idgraph.projection.parts import Pass
from merge.identity.persons import Persons

CROSSED_AT_ONCE = 1_000
"""Entries of the feed with one moment: readers have passed by a moment that is long ago."""


def segments_mark(rules: IndexRules) -> str:
    """The mark of the store that says that all profiles were evaluated for these segments, by these policies
    of the attributes that they ask for."""
    paths = sorted({each.path or "" for segment in rules.segments for each in leaves(segment.condition)})
    policies = [[path, rules.is_indexable(path), repr(rules.policies.get(path))] for path in paths if path]
    names = [[each.name, each.version] for each in rules.segments]
    return f"segments {hashlib.sha256(canonical.encode([names, policies])).hexdigest()}"


class _Evaluated(NamedTuple):
    """The segments that a profile is in, by its document of this version, and those that report its changes.
    A profile that is gone has none."""

    version: int
    inside: Mapping[str, bool]
    reporting: Sequence[str] = ()
    is_gone: bool = False


class Segments:
    """The segments that profiles of one store and index are in. One per projection."""

    def __init__(self, store: ProfileStore, index: ProfileIndex) -> None:
        self._store = store
        self._index = index
        self._evaluated: dict[str, _Evaluated] = {}
        self._evaluating: tuple[str, Pass] | None = None
        self._followed: str | None = None

    def clear(self) -> None:
        """Forget what was evaluated: a commit of the index begins."""
        self._evaluated.clear()

    def evaluate(self, documents: Iterable[IndexDocument], rules: IndexRules) -> None:
        """Note which segments the profiles of these documents are in."""
        for each in documents:
            inside = {one.name: self._index.matches(each, one.condition) for one in rules.segments}
            reporting = [one.name + CHANGES for one in rules.segments if one.changes and inside[one.name]]
            self._evaluated[each.id] = _Evaluated(each.version, inside, reporting)

    def leave(self, versions: Mapping[str, int]) -> None:
        """Profiles that are no more are in no segment, nor in one that comes into force again."""
        self._evaluated |= {name: _Evaluated(each, {}, is_gone=True) for name, each in versions.items()}

    def cross(self) -> None:
        """Append what the evaluated profiles entered and left, and where they changed, behind the commit of the index.

        Another projection may have put a later document meanwhile and found nothing to append. It did so before it looked,
        so that the index has that document by now, and the profile is projected again."""
        if not self._evaluated:
            return
        crossed_before = self._store.crossed(list(self._evaluated))
        crossings = []
        for name, (version, inside, reporting, is_gone) in self._evaluated.items():
            numbers = crossed_before.get(name, {})
            exits = {each: False for each in numbers if is_gone and not each.endswith(CHANGES)}
            for segment, is_inside in {**inside, **exits}.items():
                number = numbers.get(segment, 0)
                if is_inside != (number % 2 == 1):
                    crossings.append(Crossing(0, name, segment, number + 1))
            newer = [each for each in reporting if numbers.get(each, 0) < version]
            crossings += [Crossing(0, name, each, version) for each in newer]
        if not crossings:
            return
        remaining = iter(crossings)
        while batch := list(islice(remaining, CROSSED_AT_ONCE)):
            now = time.time_ns() // 1_000_000
            self._store.cross([each._replace(at_ms=now) for each in batch])
        crossed = sorted({str(each.profile) for each in crossings})
        present = self._index.versions(crossed)
        overtaken = [
            name
            for name in crossed
            if (
                present.get(name, 0) > self._evaluated[name].version
                or (name not in present and not self._evaluated[name].is_gone)
            )
        ]
        if overtaken:
            self._store.enqueue(overtaken)
            stored = self._store.read(overtaken)
            self._evaluated.clear()
            self.leave({name: 0 for name in overtaken if name not in stored})
            self.cross()

    def enter(self, ids: Sequence[str], rules: IndexRules, persons: Persons) -> None:
        """Append which segments the profiles of these ids are in, where the feed does not say so yet."""
        found = persons.named(ids, resolves_all=False).persons
        self._evaluated.clear()
        # The others are in the outbox: members that have not joined would count in their version.
        settled = [
            each for each in found if all(part.stored.projected_into == each.id for part in each.members)
        ]
        behaviour = behaviour_now(self._store, settled, rules)
        self.evaluate(documents_of(settled, rules, behaviour).documents, rules)
        self.cross()

    def follow(self, rules: IndexRules, through_all: Callable[[], Pass], ends: float) -> bool:
        """Evaluate segments that are new, and that have changed, for all profiles: `through_all` begins a pass of `enter`.
        Returns whether the time until `ends` (`time.monotonic`) was enough; the next call goes on."""
        mark = segments_mark(rules) if rules.segments else ""
        if mark == self._followed:
            return True
        if mark and (self._followed is not None or not self._store.remembers(mark)):
            if self._evaluating is None or self._evaluating[0] != mark:
                self._evaluating = mark, through_all()
            if not self._evaluating[1].has_ended(ends):
                return False
            self._store.remember(mark)
        self._followed, self._evaluating = mark, None
        return True
