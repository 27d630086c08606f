"""The context in which jobs are prepared, opened from the configuration."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.key_providers import ensure_keyring, provider_of
from idgraph.app.adapters.shared_state import household_log, open_documents
from idgraph.app.jobs.view import run_shown
from idgraph.files import exclusive_lock
from idgraph.jobs.kind import rate_of
from idgraph.model.errors import ConfigError, MetadataError, NotFoundError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.downloads import Downloads
    from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
    from idgraph.jobs.erase.erasure import Erasure
    from idgraph.jobs.job import Job, JobRunner
    from idgraph.jobs.kind import BesideFlow
    from idgraph.model.documents import StrictDocument
    from idgraph.model.households import HouseholdLog
    from idgraph.model.identity_rules import IdentityRules
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.jobs import JobKind, JobType, Progress, Requester
    from idgraph.model.pulsar import Bound
    from idgraph.model.schema_changes import SchemaChange
    from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
    from idgraph.model.sources import SourceConfig
    from idgraph.model.specs import SpecDefinition
    from idgraph.projection.documents import IndexPolicies
    from ingestion.sources.stream import Intake
    from ingestion.spark.workers import WorkerPlan, WorkerResources
    from ingestion.stages.outcomes import BatchReport
    from profile_service.reader import ProfileReader
    from transforms.privacy.keys import DataKeyStore, RotatingKeyProvider
    from transforms.privacy.protected_names import TombstoneNames
    from transforms.spec.operation_moves import Place

    P = TypeVar("P", bound=StrictDocument)
    J = TypeVar("J", bound=Job)

HIGHEST = 100
"""The clearance that sees everything."""


@dataclass(eq=False)
class LocalJobContext:
    """`JobContext` of this machine's configuration, for a command. A context manager: leaving it closes what it opened."""

    settings: Settings
    origin: Requester
    _: KW_ONLY
    again: bool = False
    report: Callable[[str], None] = lambda _: None
    deliver: Callable[[bytes, Sequence[str]], None] = lambda _document, _fragments: None
    stop: threading.Event = field(default_factory=threading.Event)
    clearance: int = HIGHEST
    current: Callable[[], PinnedSnapshot] | None = None
    """The newest snapshot at any time, as a service follows it. A command asks for it."""

    def __post_init__(self) -> None:
        self.directory = self.settings.directory
        self.download_hours = self.settings.profiles.download_hours
        self.backup_days = self.settings.keys.backup_days
        self.spread_from: float = self.settings.spark.preview_from
        self._stack = ExitStack()
        self._resources: WorkerResources | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @cached_property
    def plan(self) -> WorkerPlan:
        return wiring.worker_plan(self.settings)

    @cached_property
    def runner(self) -> JobRunner:
        return self._stack.enter_context(wiring.job_runner(self.settings, is_command=self.current is None))

    @cached_property
    def downloads(self) -> Downloads:
        documents = self._stack.enter_context(closing(open_documents(self.settings)))
        return wiring.downloads(self.settings, documents)

    @cached_property
    def sandboxes(self) -> list[str]:
        return wiring.sandbox_names(self.settings)

    @cached_property
    def names(self) -> TombstoneNames:
        from transforms.privacy.protected_names import TombstoneNames

        return TombstoneNames(provider_of(self.settings))

    def resources(self, notes: bool = True) -> WorkerResources:
        if self._resources is None:
            ensure_keyring(self.settings)
            self._resources = self._stack.enter_context(wiring.opened(self.settings))
            wiring.require_own_keyring(self.settings, self._resources, notes)
        return self._resources

    def keys(self) -> tuple[RotatingKeyProvider, DataKeyStore]:
        return self._stack.enter_context(wiring.opened_keys(self.settings, own=True))

    @cached_property
    def reader(self) -> ProfileReader:
        found = wiring.profile_reader(self.settings, self.resources(), self.pinned)
        return found.with_clearance(self.clearance)

    @cached_property
    def pinned(self) -> PinnedSnapshot:
        return self._newest or metadata_access.snapshot_to_read_by(self.settings)

    def snapshot_for(self, work: str) -> MetadataSnapshot:
        if self._newest is None:
            raise MetadataError(f"{work} needs a metadata snapshot: start the metadata service")
        return self._newest.snapshot

    @cached_property
    def _newest(self) -> PinnedSnapshot | None:
        return metadata_access.newest_snapshot(self.settings) if self.current is None else self.current()

    def policies(self, kind: JobKind) -> IndexPolicies:
        from idgraph.app.jobs.index_upkeep import followed_snapshot
        from idgraph.projection.documents import IndexPolicies

        if (current := self.current) is not None:
            return IndexPolicies(lambda: current().snapshot)
        return IndexPolicies(self._stack.enter_context(followed_snapshot(self.settings, str(kind))))

    def index_versions(self) -> IndexVersions:
        from idgraph.app.jobs.index_upkeep import opened_versions

        return self._stack.enter_context(opened_versions(self.settings))

    def dead_letter_search(self) -> DeadLetterSearch:
        return wiring.dead_letter_search(self.settings, self.resources(), self.pinned)

    def households(self) -> HouseholdLog:
        return self._stack.enter_context(closing(household_log(self.settings)))

    def erasure(self) -> Erasure:
        # By the snapshot that a service follows, or by the newest one when it is needed.
        pinned = None if self.current is None else self.pinned
        return wiring.erasure(self.settings, self.resources(), pinned)

    def source(self, name: str) -> SourceConfig:
        return self.settings.source(name)

    def flow(self, name: str, source: SourceConfig) -> BesideFlow:
        return LocalBesideFlow(self.settings, name, source)

    def spark(self, name: str) -> AbstractContextManager[Any]:
        from idgraph.app.flow_runner import require_shared
        from idgraph.app.java import class_archives, require_java
        from ingestion.spark.session import session_beside

        require_shared(self.settings)
        require_java()
        stated, folder = self.settings, self.directory / name
        return session_beside(stated.flow, stated.spark, folder, class_archives())

    def check(self, document: IdentityRules | SpecDefinition) -> None:
        from idgraph.model.identity_rules import IdentityRules
        from metadata_service.identity_rules import check_rules
        from metadata_service.specs.rules import check_spec, packaged_compiler

        if isinstance(document, IdentityRules):
            check_rules(document)
        else:
            check_spec(document, packaged_compiler)

    def protected_places(self, definition: SpecDefinition) -> Mapping[Place, bool]:
        # The owner of the keyring here may reveal: without the service, the spec in force counts.
        with suppress(MetadataError, ConfigError), metadata_access.metadata_client(self.settings) as client:
            return client.protected_places(definition)
        return {}

    def keep(self, found: Mapping[str, Any], is_durable: bool = False) -> None:
        """A command has the job itself."""

    def send(self, changes: list[SchemaChange]) -> None:
        from ingestion.metadata.schema_buffer import SchemaSender

        try:
            with metadata_access.flow_client(self.settings) as client:
                SchemaSender(client).send(changes)
        except MetadataError as error:
            raise type(error)(
                f"{error}; dead letters with new attributes stay until the service knows these: replay them later"
            ) from None


class LocalBesideFlow:
    """`BesideFlow` of this machine's configuration, without a port for metrics: that is the other flow's."""

    def __init__(self, settings: Settings, name: str, source: SourceConfig) -> None:
        from idgraph.app.settings.tables import MetricsSettings

        flow = settings.flow.model_copy(update={"name": name, "trigger_seconds": 0.0})
        changed = {"flow": flow, "sources": (source,), "metrics": MetricsSettings()}
        self._settings = settings.model_copy(update=changed)
        self.name = name
        self.state: Path = self._settings.flow_state()

    def newest(self) -> PinnedSnapshot | None:
        return metadata_access.newest_snapshot(self._settings)

    def extent(self, first: Bound, last: Bound) -> tuple[int, int]:
        from idgraph.app.adapters.inputs import open_pulsar_admin
        from idgraph.model.pulsar import pulsar_sources
        from ingestion.sources.pulsar.stream import TopicLook, extent

        sources = pulsar_sources(self._settings.sources_by_name())
        with closing(open_pulsar_admin(self._settings.pulsar)) as admin:
            return extent(admin, TopicLook(admin, sources, frozenset(sources)).found(), first, last)

    def forget(self) -> None:
        wiring.prepare_directory(self._settings)
        checkpoint, forgotten = self.state / "checkpoint", self.state / "forgotten"
        with exclusive_lock(self.state):
            try:
                if forgotten.exists():
                    shutil.rmtree(forgotten)
                if checkpoint.exists():
                    # Whole or not at all: Spark would resume from half a checkpoint.
                    checkpoint.rename(forgotten)
                    shutil.rmtree(forgotten)
            except OSError as error:
                raise ConfigError(f"{error.filename or checkpoint}: {error.strerror}") from None

    def run(
        self,
        stop: threading.Event,
        intake: Intake,
        on_batch: Callable[[BatchReport], None],
        on_start: Callable[[], None],
        sealed_by: str | None,
    ) -> None:
        from idgraph.app import flow_runner

        flow_runner.run_flow(self._settings, stop, intake, on_batch, on_start, sealed_by)


def run_job(
    settings: Settings,
    kind: JobType[P, J],
    parameters: P,
    origin: Requester,
    again: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[J, Progress]:
    """Run a job of a command to its end, and show its progress. Raises the errors of its parts and of the
    job."""
    with LocalJobContext(settings, origin, again=again, report=report) as context:
        job = kind.prepare(parameters, context)
        if job is None:
            raise NotFoundError("nothing is stored under it")
        return job, run_shown(context.runner, job, origin, again, rate_of(parameters))
