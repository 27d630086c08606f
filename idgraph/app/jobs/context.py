"""What jobs are prepared with, opened from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.jobs.view import run_shown
from idgraph.jobs.kind import rate_of
from idgraph.model.errors import MetadataError, NotFoundError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.downloads import Downloads
    from idgraph.jobs.job import Job, JobRunner, Run
    from idgraph.jobs.kind import JobType
    from idgraph.model.documents import StrictDocument
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.jobs import JobKind, Progress, Requester
    from idgraph.model.schema_changes import SchemaChange
    from idgraph.model.snapshots import MetadataSnapshot
    from idgraph.projection.documents import IndexPolicies
    from idgraph.snapshot_file import PinnedSnapshot
    from ingestion.spark.workers import WorkerPlan, WorkerResources
    from profile_service.reader import ProfileReader

    P = TypeVar("P", bound=StrictDocument)
    J = TypeVar("J", bound=Job)

HIGHEST = 100
"""The clearance that sees everything."""


class LocalJobContext:
    """`JobContext` of this machine's configuration. What it opens is closed with its stack."""

    def __init__(
        self,
        settings: Settings,
        stack: ExitStack,
        origin: Requester,
        clearance: int = HIGHEST,
        again: bool = False,
        current: Callable[[], PinnedSnapshot] | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`current` returns the newest snapshot at any time, for whoever follows the metadata already."""
        self.settings = settings
        self.origin = origin
        self.clearance = clearance
        self.again = again
        self.report = report
        self.run: Run | None = None
        """Once the job has begun."""
        self._stack = stack
        self._current = current
        self._resources: WorkerResources | None = None

    @property
    def directory(self) -> Path:
        return self.settings.directory

    @property
    def download_hours(self) -> float:
        return self.settings.profiles.download_hours

    @cached_property
    def plan(self) -> WorkerPlan:
        return wiring.worker_plan(self.settings)

    @cached_property
    def runner(self) -> JobRunner:
        return self._stack.enter_context(wiring.job_runner(self.settings))

    @cached_property
    def downloads(self) -> Downloads:
        return wiring.downloads(self.settings)

    def job_id(self) -> str:
        if self.run is None:
            raise RuntimeError("the job has not begun")
        return self.run.id

    def resources(self, notes: bool = True) -> WorkerResources:
        if self._resources is None:
            ensure_keyring(self.settings)
            self._resources = self._stack.enter_context(wiring.opened(self.settings))
            wiring.require_own_keyring(self.settings, self._resources, notes)
        return self._resources

    def reader(self) -> ProfileReader:
        found = wiring.profile_reader(self.settings, self.resources(), self.pinned())
        return found.with_clearance(self.clearance)

    def pinned(self) -> PinnedSnapshot:
        return self._newest or wiring.snapshot_to_read_by(self.settings)

    def snapshot_for(self, work: str) -> MetadataSnapshot:
        if self._newest is None:
            raise MetadataError(f"{work} needs a metadata snapshot: start the metadata service")
        return self._newest.snapshot

    @cached_property
    def _newest(self) -> PinnedSnapshot | None:
        return wiring.newest_snapshot(self.settings) if self._current is None else self._current()

    def policies(self, kind: JobKind) -> IndexPolicies:
        from idgraph.app.jobs.index_upkeep import followed_snapshot
        from idgraph.projection.documents import IndexPolicies

        if (current := self._current) is not None:
            return IndexPolicies(lambda: current().snapshot)
        return IndexPolicies(self._stack.enter_context(followed_snapshot(self.settings, str(kind))))

    def index_versions(self) -> IndexVersions:
        from idgraph.app.jobs.index_upkeep import opened_versions

        return self._stack.enter_context(opened_versions(self.settings))

    def send(self, changes: list[SchemaChange]) -> None:
        from ingestion.metadata.schema_buffer import SchemaSender

        try:
            with wiring.flow_client(self.settings) as client:
                SchemaSender(client).send(changes)
        except MetadataError as error:
            raise type(error)(
                f"{error}; dead letters with new attributes stay until the service knows these: replay them later"
            ) from None


@contextmanager
def job_context(
    settings: Settings,
    origin: Requester,
    again: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[LocalJobContext]:
    """The context of a command."""
    with ExitStack() as stack:
        yield LocalJobContext(settings, stack, origin, again=again, report=report)


def run_job(
    settings: Settings, kind: JobType[P, J], parameters: P, origin: Requester, again: bool = False
) -> tuple[J, Progress]:
    """Run a job of a command to its end, and show how far it is. Raises what its parts and the job raise."""
    with job_context(settings, origin, again) as context:
        job = kind.prepare(parameters, context)
        if job is None:
            raise NotFoundError("nothing is stored under it")
        return job, run_shown(context.runner, job, origin, again, rate_of(parameters))
