"""The index again from the store, beside the flows that write, until it takes the place of the one in use.

1. Another version of the index is begun. From here on everybody who puts into the index or erases there does so in both.
2. Tombstones are brought into it.
3. All fragments are read, page by page, and the profiles that they name are indexed under the newest snapshot.
4. The version takes the place of the one in use, in one step; the replaced one is deleted.

The progress of the third step is the job's resume point. Versions decide between documents, so whichever way
one comes, and however often, the newest stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext, Rate, page_of
from idgraph.model.callers import Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.index_versions import IndexVersions
from idgraph.model.jobs import START, JobKind, JobType, Point, Progress
from idgraph.model.store import ProfileStore, scan_pages
from idgraph.projection.behaviour import Deriving
from idgraph.projection.documents import IndexPolicy, documents_of, put
from merge.identity.persons import Named, Persons
from merge.identity.rules import Rules

log = logging.getLogger(__name__)

PAGE = 1000


class ReindexParameters(StrictDocument):
    """Make the search index again, beside the flows."""

    rate: Rate = None


class Reindex(PagedJob):
    """Counts profiles that are `indexed`, and `refused` ones, which the index does not take, or whose state
    is damaged. The first are in the notes."""

    kind = JobKind.REINDEX

    def __init__(
        self,
        store: ProfileStore,
        versions: IndexVersions,
        policy: Callable[[], IndexPolicy],
        page: int = PAGE,
        again: bool = False,
    ) -> None:
        """`again` drops the version that an earlier run left."""
        self._store = store
        self._versions = versions
        self._policy = policy
        self._page = page
        self._again = again
        self._deriving = Deriving(store)
        self._mark = ""
        self.version = ""
        """The version that is being made, once it is planned."""
        self.replaced = ""
        """The version that was in use before, once it is replaced."""

    def plan(self, point: Point) -> Plan:
        self.version, self._mark = self._versions.begin(self._again)
        resumes = point.get("under") == self._under(self._policy())
        return Plan(f"making {self.version}", self._store.count(), "fragment", resumes)

    def pages(self, progress: Progress, point: Point) -> Iterator[Point]:
        while True:
            policy = self._policy()
            yield from self._fill(policy, progress, point)
            if self._policy().fingerprint == policy.fingerprint:
                break
            log.warning("the rules for indexable values have changed: all profiles are indexed again")
        self.replaced = self._versions.switch()

    def paced(self, progress: Progress) -> int:
        return progress.counts["indexed"]

    def _under(self, policy: IndexPolicy) -> str:
        """The version that is being made and its policy: a resume point is valid for these alone."""
        return f"{self._mark} {policy.fingerprint}"

    def _fill(self, policy: IndexPolicy, progress: Progress, point: Point) -> Iterator[Point]:
        """Index all fragments behind the point by one policy, as long as that is the newest."""
        under = self._under(policy)
        if point.get("under") != under:
            point = {}
            progress.begin_again()
            # A writer that read a fragment before its erasure may put it after.
            self._versions.write_tombstones(self._store.all_tombstones())
        persons = Persons(self._store, Rules(policy.rules.identity))
        for fragments in scan_pages(self._store, self._page, point.get("after", "")):
            named = persons.named((each.id for each in fragments), resolves_all=False)
            self._put(named, policy, progress)
            progress.done += len(fragments)
            yield {"under": under, "after": fragments[-1].id}
            if self._policy().fingerprint != policy.fingerprint:
                return

    def _put(self, named: Named, policy: IndexPolicy, progress: Progress) -> None:
        behaviour = self._deriving.of(named.persons, policy.rules, time.time_ns() // 1_000_000)
        found = documents_of(named.persons, policy.rules, behaviour)
        refused = put(self._versions, found.documents)
        for name, reason in refused.items():
            log.warning("the index refused %s: %s", name, reason)
        failed = refused.keys() | found.unreadable | named.unreadable.keys()
        progress.counts["refused"] += len(failed)
        progress.note("refused", sorted(failed))
        progress.counts["indexed"] += len(named.persons) - len(refused) - len(found.unreadable)


def _prepare(parameters: ReindexParameters, context: JobContext) -> Reindex:
    policies, versions = context.policies(JobKind.REINDEX), context.index_versions()
    store = context.resources(notes=False).store
    return Reindex(store, versions, policies, page_of(PAGE, parameters.rate), context.again)


REINDEX = JobType(
    "makes the search index again",
    "idgraph reindex",
    ReindexParameters,
    _prepare,
    request=START,
    scope=Scope.OPERATE,
    resumed=lambda _record, _who: {},
)
