"""Compares the index with the documents that the projection would write, beside the flows that write, and
repairs drift.

Changes in progress are no drift. A fragment that was written, erased or withdrawn has an entry in the outbox
until it is projected. So a difference is drift only if the fragment has no entry, and is the same before and
after the look at the index. Hence the order of the looks, which is always: the store, the outbox, the index,
the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext, Rate, page_of
from idgraph.model.callers import Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.index import IndexDocument, Indexed, ProfileIndex, SearchPage, search_pages
from idgraph.model.jobs import START, JobKind, JobType, Point, Progress
from idgraph.model.queries import Query
from idgraph.model.store import ProfileStore, StoredFragment, scan_pages
from idgraph.projection.behaviour import Deriving
from idgraph.projection.documents import Documents, IndexPolicy, documents_of
from idgraph.projection.projection import Projection
from merge.identity.components import Person
from merge.identity.persons import Named, Persons
from merge.identity.rules import Rules

PAGE = 1000


class Drift(StrEnum):
    """The difference between the index and the store."""

    MISSING = "missing"
    """Stored, and not in the index."""
    STALE = "stale"
    """In the index in an older version."""
    DIFFERENT = "different"
    """In the index in this version, with another content than policy gives it now."""
    ORPHANED = "orphaned"
    """In the index, and no profile of the store."""
    AHEAD = "ahead"
    """In the index in a later version: the store was restored. Only another version of the index repairs it."""


class ReconcileParameters(StrictDocument):
    """Compare the index with the store."""

    repair: bool = False
    rate: Rate = None


class IndexReconciliation(PagedJob):
    """Compares, and with `repairs` repairs by the projection. Counts fragments `stored` and `indexed`, the
    `drift` by kind, fragments `waiting` in the outbox or being erased, and `unreadable` states. It splits the
    drift into `repaired` and `left`; the first fragments of each kind are in the notes. Several at once do no
    harm."""

    kind = JobKind.RECONCILE

    def __init__(
        self,
        store: ProfileStore,
        index: ProfileIndex,
        policy: Callable[[], IndexPolicy],
        repairs: bool = False,
        page: int = PAGE,
    ) -> None:
        self.what = {"repair": repairs}
        self._store = store
        self._index = index
        self._policy = policy
        self._repairs = repairs
        self._page = page
        self._deriving = Deriving(store)
        self._projection = Projection(store, index, lambda: policy().rules, PAGE)
        self._identity: tuple[IdentityRules, Persons] | None = None

    def plan(self, point: Point) -> Plan:
        total = self._store.count() + self._index.count(Query())
        # The place in one index does not hold in another.
        return Plan(
            "comparing index and store", total, "comparison", point.get("index") == self._index.identity()
        )

    def pages(self, progress: Progress, point: Point) -> Iterator[Point]:
        index, cursor = self._index.identity(), point.get("cursor")
        if cursor is None:
            for fragments in scan_pages(self._store, self._page, point.get("after", "")):
                self._look_at_stored(fragments, progress)
                yield {"index": index, "after": fragments[-1].id}
        for found in search_pages(self._index, self._page, cursor):
            self._look_at_indexed(found, progress)
            if found.cursor is not None:
                yield {"index": index, "cursor": found.cursor}

    def _look_at_stored(self, fragments: Sequence[StoredFragment], progress: Progress) -> None:
        named = self._named(each.id for each in fragments)
        documents, unreadable = self._documents(named.persons)
        found = self._index.compare(documents)
        suspects = [each.id for each in documents if _drift(each, found.get(each.id))]
        if suspects:
            self._judge(suspects, progress)
        progress.counts["unreadable"] += len(unreadable) + len(named.unreadable)
        progress.counts["stored"] += len(named.persons) + len(named.unreadable)
        progress.done += len(fragments)

    def _judge(self, suspects: Sequence[str], progress: Progress) -> None:
        """Drift among fragments that looked like it."""
        persons = {each.id: each for each in self._named(suspects).persons}
        stored = {
            member.stored.id: (person.id, member.stored.version)
            for person in persons.values()
            for member in person.members
        }
        under_way = {
            stored[each.fragment_id][0]
            for each in self._store.summaries(list(stored))
            if each.in_outbox or each.version != stored[each.fragment_id][1]
        }
        progress.counts["waiting"] += len(under_way)
        drift = self._compared(each for each in persons.values() if each.id not in under_way)
        # A fragment that went meanwhile, or changes at this moment, is neither missing nor behind.
        now = {each.id: each.version for each in self._named(drift).persons}
        drift = {
            each: kind
            for each, kind in drift.items()
            if each in now and (kind is not Drift.AHEAD or now[each] == persons[each].version)
        }
        for kind in Drift:
            _count(progress, kind, [each for each, its in drift.items() if its is kind])
        self._repair([persons[each] for each, kind in drift.items() if kind is not Drift.AHEAD], progress)
        progress.counts["left"] += sum(kind is Drift.AHEAD for kind in drift.values())

    def _named(self, ids: Iterable[str]) -> Named:
        rules = self._policy().rules.identity
        if self._identity is None or self._identity[0] is not rules:
            self._identity = rules, Persons(self._store, Rules(rules))
        return self._identity[1].named(ids, resolves_all=False)

    def _documents(self, persons: Sequence[Person]) -> Documents:
        rules = self._policy().rules
        return documents_of(persons, rules, self._deriving.of(persons, rules, time.time_ns() // 1_000_000))

    def _compared(self, persons: Iterable[Person]) -> dict[str, Drift]:
        documents, _ = self._documents(list(persons))
        found = self._index.compare(documents)
        kinds = ((each.id, _drift(each, found.get(each.id))) for each in documents)
        return {name: kind for name, kind in kinds if kind is not None}

    def _repair(self, persons: Sequence[Person], progress: Progress) -> None:
        """Repair by the projection, then compare again, since the index may hold on to an erasure of a later
        version."""
        if not persons or not self._repairs:
            progress.counts["left"] += len(persons)
            return
        self._projection.project(each.id for each in persons)
        unrepaired = self._compared(persons)
        # A later version than the one read here is no drift: others wrote meanwhile.
        left = sum(kind is not Drift.AHEAD for kind in unrepaired.values())
        progress.counts["left"] += left
        progress.counts["repaired"] += len(persons) - left

    def _look_at_indexed(self, page: SearchPage, progress: Progress) -> None:
        stored = self._profiles(page.ids)
        gone = [each for each in page.ids if each not in stored]
        if gone:
            self._judge_gone(gone, progress)
        progress.counts["indexed"] += len(page.ids)
        progress.done += len(page.ids)

    def _judge_gone(self, gone: Sequence[str], progress: Progress) -> None:
        """Orphans among documents whose fragments are not stored."""
        under_way = {each.fragment_id for each in self._store.summaries(gone) if each.in_outbox}
        progress.counts["waiting"] += len(under_way)
        orphans = self._orphans(each for each in gone if each not in under_way)
        _count(progress, Drift.ORPHANED, list(orphans))
        if not self._repairs:
            progress.counts["left"] += len(orphans)
            return
        if orphans:
            self._projection.project(orphans)
            left = self._orphans(orphans)
            progress.counts["left"] += len(left)
            progress.counts["repaired"] += len(orphans) - len(left)

    def _orphans(self, ids: Iterable[str]) -> dict[str, int]:
        """The fragments that are in the index, by their version there, and then name no profile."""
        present = self._index.versions(list(ids))
        stored = self._profiles(present)
        return {name: version for name, version in present.items() if name not in stored}

    def _profiles(self, ids: Iterable[str]) -> set[str]:
        """The fragments that name a profile. Ones with a damaged state count: their profile is unknown."""
        found: set[str] = set()
        remaining = iter(ids)
        while some := list(islice(remaining, self._page)):
            named = self._named(some)
            found |= {each.id for each in named.persons} | named.unreadable.keys()
        return found


def _count(progress: Progress, kind: Drift, ids: Sequence[str]) -> None:
    """Count drift, and name the first."""
    if ids:
        progress.count("drift", {str(kind): len(ids)})
        progress.note(str(kind), ids)


def _drift(document: IndexDocument, found: Indexed | None) -> Drift | None:
    if found is None:
        return Drift.MISSING
    if found.version != document.version:
        return Drift.STALE if found.version < document.version else Drift.AHEAD
    return None if found.is_same else Drift.DIFFERENT


def _prepare(parameters: ReconcileParameters, context: JobContext) -> IndexReconciliation:
    policies, here = context.policies(JobKind.RECONCILE), context.resources(notes=False)
    page = page_of(PAGE, parameters.rate)
    return IndexReconciliation(here.store, here.index, policies, parameters.repair, page)


RECONCILE = JobType(
    "compares the search index with the store, and repairs it",
    "idgraph reconcile",
    ReconcileParameters,
    _prepare,
    request=START,
    scope=Scope.OPERATE,
    resumed=lambda record, _who: {"repair": record.what.get("repair", False)},
)
