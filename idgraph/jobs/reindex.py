"""The index again from the store, beside the flows that write, until it takes the place of the one in use.

1. Another version of the index is begun. From here on everybody who puts into the index or erases there does so in both.
2. Tombstones are brought into it.
3. All fragments are read, page by page, and indexed under the newest snapshot.
4. The version takes the place of the one in use, in one step; the replaced one is deleted.

How far the third step came is on disk. A document is judged by its version, so whichever way it comes, and however
often, the newest stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from idgraph.jobs.resume_points import ResumePoint
from idgraph.model.index_versions import IndexVersions
from idgraph.model.store import ProfileStore, StoredFragment, scan_pages
from idgraph.projection.documents import IndexPolicy, documents_of, put

log = logging.getLogger(__name__)

PAGE = 1000
SHOWN = 5
"""How many fragments are named where more may be meant."""


@dataclass(slots=True)
class ReindexProgress:
    """How far it is. `total` fragments there were at the start, of which `looked_at` include those of the run that
    was interrupted and is resumed (`resumed`). `refused` ones are not in the index: it does not take them, or their state
    is damaged; the first are in `named`."""

    version: str
    total: int
    looked_at: int = 0
    indexed: int = 0
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

    def run(
        self, page: int = PAGE, anew: bool = False, keep: bool = False
    ) -> Generator[ReindexProgress, None, None]:
        """Gives the progress at the start and after each page; the same object again and again. `anew` forgets what was
        begun, `keep` leaves the replaced version.

        Blocks. Raises ProfileIndexError and StoreError; run it again then.
        """
        begun = self._versions.begin(anew)
        progress = ReindexProgress(begun.name, self._store.count())
        while True:
            policy = self._policy()
            yield from self._fill(f"{begun.mark} {policy.fingerprint}", policy, page, progress)
            if self._policy().fingerprint == policy.fingerprint:
                break
            log.warning("what may be indexed has changed: all profiles are indexed again")
        progress.replaced = self._versions.switch(keep)
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
            # A writer that read a fragment before its erasure may put it after.
            self._versions.write_tombstones(self._store.all_tombstones())
        yield progress
        for fragments in scan_pages(self._store, page, after):
            self._put(fragments, policy, progress)
            progress.looked_at += len(fragments)
            self._point.keep(under, {"after": fragments[-1].id, "looked_at": progress.looked_at})
            yield progress
            if self._policy().fingerprint != policy.fingerprint:
                return

    def _put(
        self, fragments: Sequence[StoredFragment], policy: IndexPolicy, progress: ReindexProgress
    ) -> None:
        found = documents_of(fragments, policy.rules)
        refused = put(self._versions, found.documents)
        for name, reason in refused.items():
            log.warning("the index refused %s: %s", name, reason)
        failed = refused.keys() | found.unreadable
        progress.refused = (progress.refused - {each.id for each in fragments}) | failed
        progress.indexed += len(fragments) - len(failed)
