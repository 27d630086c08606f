"""All persons resolved again, compared with those that the projection recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from idgraph.jobs.export_file import write_export
from idgraph.jobs.job import Job, Plan, Run
from idgraph.jobs.kind import JobContext
from idgraph.model.documents import StrictDocument
from idgraph.model.jobs import SHOWN, JobKind, JobType, Point, Progress
from ingestion.stages.resolve import ResolvedProfile, profile_of, unreadable
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from transforms.privacy.protected_names import StoredNames

PAGE = 1000


def read_profiles(persons: Persons, show: Callable[[str], str]) -> Iterator[ResolvedProfile]:
    """All persons as readers resolve them, in this process. Raises StoreError."""
    for named in persons.scan():
        found = [profile_of(each, show) for each in named.persons]
        yield from sorted(found + [unreadable(each) for each in named.unreadable])


class ResolveParameters(StrictDocument):
    """Resolve all profiles again. `check`: change nothing; `rebuild`: from scratch, in Spark; `output`: a file for a line per
    profile."""

    check: bool = False
    rebuild: bool = False
    output: Path | None = None


class ResolveAll(Job):
    """Counts `profiles`, `unreadable` fragments, and those that are recorded for another profile
    (`misplaced`). With `checks` it counts profiles whose document in the index is missing or of another
    version (`documents`). Profiles on their way into the index are `waiting`. Without `checks` misplaced
    fragments are put into the outbox. The first of each are in the notes."""

    kind = JobKind.RESOLVE

    def __init__(self, parameters: ResolveParameters, context: JobContext) -> None:
        self.what = {"check": parameters.check, "rebuild": parameters.rebuild}
        self._parameters = parameters
        self._context = context
        resources = context.resources(notes=False)
        self._store, self._index = resources.store, resources.index
        self._snapshot = context.pinned.snapshot
        self._show = StoredNames(self._snapshot, resources.blind_index).identifier
        self._checks = parameters.check

    def plan(self, _point: Point) -> Plan:
        return Plan("resolving", self._store.count(), "fragment")

    def work(self, run: Run) -> None:
        with self._profiles() as profiles:
            lines = self._lines(run, profiles)
            if self._parameters.output is not None:
                write_export(self._parameters.output, lines)
            for _ in lines:
                pass

    @contextmanager
    def _profiles(self) -> Iterator[Iterator[ResolvedProfile]]:
        """All profiles: by a Spark session of their own, or in this process."""
        if not self._parameters.rebuild:
            yield read_profiles(Persons(self._store, Rules(self._snapshot.identity_rules)), self._show)
            return
        from ingestion.spark.rebuild import rebuilt

        with self._context.spark("resolve") as session:
            yield rebuilt(session, self._context.plan, self._snapshot)

    def _lines(self, run: Run, profiles: Iterable[ResolvedProfile]) -> Iterator[bytes]:
        """Look at all profiles; yields the line of each. Raises JobStoppedError when the job must end."""
        remaining = iter(profiles)
        while some := list(islice(remaining, PAGE)):
            run.progress.done += sum(len(each.fragments) for each in some)
            run.progress.counts["unreadable"] += sum(not each.line for each in some)
            self._look_at(run.progress, [each for each in some if each.line])
            yield from (each.line for each in some)
            run.page({})

    def _look_at(self, progress: Progress, profiles: Sequence[ResolvedProfile]) -> None:
        progress.counts["profiles"] += len(profiles)
        suspects = [each for each in profiles if each.misplaced]
        stale: list[ResolvedProfile] = []
        if self._checks:
            versions = self._index.versions([each.id for each in profiles])
            stale = [e for e in profiles if not e.misplaced and versions.get(e.id) != e.version]
        under_way = self._under_way([*suspects, *stale])
        progress.counts["waiting"] += len(under_way)
        misplaced = [name for each in suspects if each.id not in under_way for name in each.misplaced]
        self._count(progress, "misplaced", misplaced)
        self._count(progress, "documents", [each.id for each in stale if each.id not in under_way])
        if misplaced and not self._checks:
            self._store.enqueue(misplaced)

    def _under_way(self, profiles: Sequence[ResolvedProfile]) -> set[str]:
        """The profiles with a fragment that waits for the projection."""
        of = {name: each.id for each in profiles for name in each.fragments}
        return {of[each.fragment_id] for each in self._store.summaries(list(of)) if each.in_outbox}

    def _count(self, progress: Progress, name: str, ids: Sequence[str]) -> None:
        progress.counts[name] += len(ids)
        progress.note(name, list(map(self._show, ids[:SHOWN])))


RESOLVE = JobType("resolves all profiles again", "idgraph resolve", ResolveParameters, ResolveAll)
