"""Comparing the index with what the projection would write, beside the flows that write, and repairing what differs.

What is in progress is no drift. A fragment that was written, erased or withdrawn has an entry in the outbox until it is
projected. So a difference is drift only if the fragment has no entry, and is the same before and after the look at the index.
Hence the order of the looks, which is always: the store, the outbox, the index, the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from idgraph.jobs.resume_points import ResumePoint
from idgraph.model.batch_size import BatchSize
from idgraph.model.index import IndexDocument, Indexed, ProfileIndex, SearchPage, search_pages
from idgraph.model.queries import Query
from idgraph.model.store import ProfileStore, StoredFragment, read_pages, scan_pages
from idgraph.projection.documents import IndexPolicy, documents_of
from idgraph.projection.projection import Projection

PAGE = 1000
SHOWN = 5
"""How many fragments of each kind are named."""


class Drift(StrEnum):
    """How the index differs from the store."""

    MISSING = "missing"
    """Stored, and not in the index."""
    STALE = "stale"
    """In the index in an older version."""
    DIFFERENT = "different"
    """In the index in this version, with another content than policy gives it now."""
    ORPHANED = "orphaned"
    """In the index, and not stored."""
    AHEAD = "ahead"
    """In the index in a later version: the store was restored. Only another version of the index repairs it."""


@dataclass(slots=True)
class ReconcileProgress:
    """How far it is. `total` are all fragments and all documents that there were at the start, `looked_at` of
    both; `waiting` ones are in the outbox or being erased; `unreadable` ones have a damaged state; `repaired` are
    those of `drift` that were repaired, `left` those that could not be."""

    total: int
    looked_at: int = 0
    stored: int = 0
    indexed: int = 0
    resumed: bool = False
    drift: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    unreadable: int = 0
    repaired: int = 0
    left: int = 0
    named: dict[str, list[str]] = field(default_factory=dict)

    def take(self, kind: Drift, ids: Sequence[str]) -> None:
        """Count drift, and name the first."""
        if ids:
            self.drift[str(kind)] += len(ids)
            named = self.named.setdefault(str(kind), [])
            named += ids[: SHOWN - len(named)]


class Reconciling:
    """One run of it; several at once do no harm."""

    def __init__(
        self,
        store: ProfileStore,
        index: ProfileIndex,
        policy: Callable[[], IndexPolicy],
        point: ResumePoint,
        repairs: bool = False,
    ) -> None:
        self._store = store
        self._index = index
        self._policy = policy
        self._point = point
        self._repairs = repairs
        self._projection = Projection(store, index, lambda: policy().rules, PAGE)
        self._size = BatchSize(PAGE)

    def run(self, page: int = PAGE, anew: bool = False) -> Generator[ReconcileProgress, None, None]:
        """Gives the progress at the start and after each page of at most `page`; the same object again and again.

        Blocks. Raises ProfileIndexError and StoreError; run it again then, and it goes on unless `anew`.
        """
        progress = ReconcileProgress(self._store.count() + self._index.count(Query()))
        under = f"{self._job} {self._index.identity()}"
        kept = {} if anew else self._point.read(under)
        after, cursor = str(kept.get("after", "")), kept.get("cursor")
        if kept:
            _restore(progress, kept)
        yield progress
        if cursor is None:
            for fragments in scan_pages(self._store, page, after):
                self._look_at_stored(fragments, progress)
                self._keep(under, progress, fragments[-1].id, None)
                yield progress
        for found in search_pages(self._index, page, cursor or None):
            self._look_at_indexed(found, progress)
            if found.cursor is not None:
                self._keep(under, progress, "", found.cursor)
            yield progress
        self._point.forget()

    @property
    def _job(self) -> str:
        return "repair" if self._repairs else "report"

    def _keep(self, under: str, progress: ReconcileProgress, after: str, cursor: str | None) -> None:
        counts = {each: getattr(progress, each) for each in _COUNTS}
        place = {"after": after, "cursor": cursor, "drift": progress.drift, "named": progress.named}
        self._point.keep(under, {**counts, **place})

    def _look_at_stored(self, fragments: Sequence[StoredFragment], progress: ReconcileProgress) -> None:
        documents, unreadable = documents_of(fragments, self._policy().rules)
        found = self._index.compare(documents)
        suspects = [each.id for each in documents if _drift(each, found.get(each.id))]
        if suspects:
            self._judge(suspects, progress)
        progress.unreadable += len(unreadable)
        progress.stored += len(fragments)
        progress.looked_at += len(fragments)

    def _judge(self, suspects: Sequence[str], progress: ReconcileProgress) -> None:
        """Drift among fragments that looked like it."""
        stored = self._store.read(suspects)
        under_way = {
            each.fragment_id
            for each in self._store.summaries(list(stored))
            if each.in_outbox or each.version != stored[each.fragment_id].version
        }
        progress.waiting += len(under_way)
        settled = [each for each in stored.values() if each.id not in under_way]
        drift = self._compared(settled)
        # One that went meanwhile, or goes on at this moment, is neither missing nor behind.
        now = self._versions(drift)
        drift = {
            each: kind
            for each, kind in drift.items()
            if each in now and (kind is not Drift.AHEAD or now[each] == stored[each].version)
        }
        for kind in Drift:
            progress.take(kind, [each for each, its in drift.items() if its is kind])
        self._repair([stored[each] for each, kind in drift.items() if kind is not Drift.AHEAD], progress)
        progress.left += sum(kind is Drift.AHEAD for kind in drift.values())

    def _compared(self, fragments: Iterable[StoredFragment]) -> dict[str, Drift]:
        documents, _ = documents_of(fragments, self._policy().rules)
        found = self._index.compare(documents)
        kinds = ((each.id, _drift(each, found.get(each.id))) for each in documents)
        return {name: kind for name, kind in kinds if kind is not None}

    def _repair(self, fragments: Sequence[StoredFragment], progress: ReconcileProgress) -> None:
        """By the projection; then compared again, since the index may hold on to an erasure of a later version."""
        if not fragments or not self._repairs:
            progress.left += len(fragments)
            return
        self._projection.project(each.id for each in fragments)
        unmended = self._compared(fragments)
        # Later than what was read here is well: others wrote meanwhile.
        left = sum(kind is not Drift.AHEAD for kind in unmended.values())
        progress.left += left
        progress.repaired += len(fragments) - left

    def _look_at_indexed(self, page: SearchPage, progress: ReconcileProgress) -> None:
        stored = self._versions(page.ids)
        gone = [each for each in page.ids if each not in stored]
        if gone:
            self._judge_gone(gone, progress)
        progress.indexed += len(page.ids)
        progress.looked_at += len(page.ids)

    def _judge_gone(self, gone: Sequence[str], progress: ReconcileProgress) -> None:
        """Orphans among documents whose fragments are not stored."""
        under_way = {each.fragment_id for each in self._store.summaries(gone) if each.in_outbox}
        progress.waiting += len(under_way)
        orphans = self._orphans(each for each in gone if each not in under_way)
        progress.take(Drift.ORPHANED, list(orphans))
        if not self._repairs:
            progress.left += len(orphans)
            return
        if orphans:
            self._projection.project(orphans)
            left = self._orphans(orphans)
            progress.left += len(left)
            progress.repaired += len(orphans) - len(left)

    def _orphans(self, ids: Iterable[str]) -> dict[str, int]:
        """Those that are in the index, by their version there, and then are not stored."""
        present = self._index.versions(list(ids))
        stored = self._versions(present)
        return {name: version for name, version in present.items() if name not in stored}

    def _versions(self, ids: Iterable[str]) -> dict[str, int]:
        """Of those that are stored. What they hold need not be in memory all at once."""
        pages = read_pages(self._store, ids, self._size)
        return {name: each.version for _, found in pages for name, each in found.items()}


_COUNTS = ("total", "looked_at", "stored", "indexed", "waiting", "unreadable", "repaired", "left")


def _restore(progress: ReconcileProgress, kept: dict[str, object]) -> None:
    for each in _COUNTS:
        value = kept.get(each)
        if isinstance(value, int):
            setattr(progress, each, value)
    if isinstance(drift := kept.get("drift"), dict):
        progress.drift.update(drift)
    if isinstance(named := kept.get("named"), dict):
        progress.named.update(named)
    progress.resumed = True


def _drift(document: IndexDocument, found: Indexed | None) -> Drift | None:
    if found is None:
        return Drift.MISSING
    if found.version != document.version:
        return Drift.STALE if found.version < document.version else Drift.AHEAD
    return None if found.is_same else Drift.DIFFERENT
