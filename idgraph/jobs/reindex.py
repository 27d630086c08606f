"""The index again from the store, beside the flows that write, until it takes the place of the one in use.

The order makes it whole, and each step can be done again:

1. another version of the index is begun: what is put into the one in use from here on, or erased there, is followed;
2. tombstones are brought into it;
3. all fragments are read, page by page, and indexed under the newest snapshot. What a flow writes behind the walk it
   puts into the version in use afterwards, so it is followed; what it has not put yet waits in the outbox;
4. what was put meanwhile is read again from the store, until little is left;
5. the version takes the place of the one in use, in a moment in which writers wait.

How far the third step came is on disk. Both sides judge a document by its version, so whichever way it comes, and
however often, the newest stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from idgraph.jobs.resume_points import ResumePoint
from idgraph.model.batch_size import BatchSize
from idgraph.model.index_versions import IndexVersions
from idgraph.model.store import ProfileStore, StoredFragment, read_pages, scan_pages
from idgraph.projection.indexing import IndexPolicy, documents_of
from merge import isolation

log = logging.getLogger(__name__)

PAGE = 1000
FEW = 100
"""So little is left to follow that writers can wait for it."""
MOST_ROUNDS = 100
"""Looks at what was put meanwhile, after which writers wait however much is left."""
SHOWN = 5
"""How many fragments are named where more may be meant."""


@dataclass(slots=True)
class ReindexProgress:
    """How far it is. `total` fragments there were at the start, of which `looked_at` include those of the run that
    was interrupted and is resumed (`resumed`); `followed` were put by others meanwhile. `refused` ones are not in
    the index: it does not take them, or their state is damaged; the first are in `named`."""

    version: str
    total: int
    looked_at: int = 0
    indexed: int = 0
    followed: int = 0
    resumed: bool = False
    refused: set[str] = field(default_factory=set)
    replaced: str = ""
    """The version that was in use before, once it is replaced."""

    @property
    def named(self) -> list[str]:
        return sorted(self.refused)[:SHOWN]


class Reindexing:
    """One run of it. Several at once do no harm, and no good."""

    def __init__(
        self,
        store: ProfileStore,
        versions: IndexVersions,
        policy: Callable[[], IndexPolicy],
        point: ResumePoint,
    ) -> None:
        self._store = store
        self._versions = versions
        self._policy = policy
        self._point = point
        self._size = BatchSize(PAGE)

    def run(self, page: int = PAGE, anew: bool = False) -> Generator[ReindexProgress, None, None]:
        """Gives the progress at the start and after each page; the same object again and again.

        Blocks. Raises ProfileIndexError and StoreError; run it again then. `anew` forgets what was begun.
        """
        begun = self._versions.begin(anew)
        progress = ReindexProgress(begun.name, self._store.count())
        while True:
            policy = self._policy()
            yield from self._fill(f"{begun.mark} {policy.fingerprint}", policy, page, progress)
            yield from self._follow(progress)
            if self._policy().fingerprint == policy.fingerprint:
                break
            log.warning("what may be indexed has changed: all profiles are indexed again")
        progress.replaced = self._versions.switch(lambda ids: self._take(ids, progress))
        self._point.forget()
        yield progress

    def _fill(
        self, under: str, policy: IndexPolicy, page: int, progress: ReindexProgress
    ) -> Iterator[ReindexProgress]:
        """Index all fragments by one policy, as long as that is the newest; its place is kept `under` both."""
        kept = self._point.read(under)
        after = str(kept.get("after", ""))
        progress.looked_at, progress.resumed = int(kept.get("looked_at", 0)), bool(kept)
        if not kept:
            self._versions.write_tombstones(self._store.all_tombstones())
            self._point.keep(under, {"after": "", "looked_at": 0})
        yield progress
        for fragments in scan_pages(self._store, page, after):
            self._put(fragments, policy, progress)
            progress.looked_at += len(fragments)
            self._point.keep(under, {"after": fragments[-1].id, "looked_at": progress.looked_at})
            yield progress
            if self._policy().fingerprint != policy.fingerprint:
                return

    def _follow(self, progress: ReindexProgress) -> Iterator[ReindexProgress]:
        for _ in range(MOST_ROUNDS):
            ids = self._versions.changed()
            self._take(ids, progress)
            yield progress
            if len(ids) < FEW:
                return

    def _take(self, ids: Sequence[str], progress: ReindexProgress) -> None:
        """Index what the store has of fragments that others put. What it has no more was erased, which is followed
        by itself."""
        for some, found in read_pages(self._store, ids, self._size):
            self._put(list(found.values()), self._policy(), progress)
            progress.followed += len(some)

    def _put(
        self, fragments: Sequence[StoredFragment], policy: IndexPolicy, progress: ReindexProgress
    ) -> None:
        found = documents_of(fragments, policy.rules)
        refused = isolation.put(self._versions, found.documents)
        for name, reason in refused.items():
            log.warning("the index refused %s: %s", name, reason)
        failed = refused.keys() | found.unreadable
        progress.refused = (progress.refused - {each.id for each in fragments}) | failed
        progress.indexed += len(fragments) - len(failed)
