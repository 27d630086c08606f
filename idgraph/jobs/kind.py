"""The context in which jobs are prepared, and parts of their descriptions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import Field

from idgraph.model.documents import StrictDocument

if TYPE_CHECKING:
    from idgraph.jobs.downloads import Downloads
    from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
    from idgraph.jobs.erase.erasure import Erasure
    from idgraph.jobs.job import JobRunner
    from idgraph.model.households import HouseholdLog
    from idgraph.model.identity_rules import IdentityRules
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.jobs import JobKind, JobRecord, Requester
    from idgraph.model.pulsar import Bound
    from idgraph.model.schema_changes import SchemaChange
    from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
    from idgraph.model.sources import SourceConfig
    from idgraph.model.specs import SpecDefinition
    from idgraph.model.tombstones import TombstoneNames
    from idgraph.projection.documents import IndexPolicies
    from ingestion.sources.stream import Intake
    from ingestion.spark.workers import WorkerPlan, WorkerResources
    from ingestion.stages.outcomes import BatchReport
    from profile_service.reader import ProfileReader
    from transforms.privacy.keys import DataKeyStore, RotatingKeyProvider
    from transforms.spec.operation_moves import Place

Rate = Annotated[int | None, Field(ge=1, le=1_000_000, description="Most units per second.")]


class BesideFlow(Protocol):
    """A flow of one source, beside the others, with a checkpoint of its own."""

    name: str
    state: Path
    """Its folder."""

    def newest(self) -> PinnedSnapshot | None:
        """The newest snapshot, or the last one that it saw."""
        ...

    def extent(self, first: Bound, last: Bound) -> tuple[int, int]:
        """About how many messages lie between two places of the source's topics, and their stored bytes. Raises ConfigError and
        SourceUnavailableError."""
        ...

    def forget(self) -> None:
        """Have the next run take all files again. Raises ConfigError, and AlreadyRunningError while it runs."""
        ...

    def run(
        self,
        stop: threading.Event,
        intake: Intake,
        on_batch: Callable[[BatchReport], None],
        on_start: Callable[[], None],
        sealed_by: str | None,
    ) -> None:
        """Run until `stop` is set, or until the input that is there at the start is done."""
        ...


class JobContext(Protocol):
    """The parts that a job is prepared with. The composition root opens each part when it is first asked for,
    and closes it when the job has ended. The parts raise ConfigError, KeyProviderError, MetadataError and
    StoreError."""

    origin: Requester
    clearance: int
    """The person who started it sees the attributes up to this level."""
    again: bool
    """Whether it starts over, without the point of an earlier run."""
    directory: Path
    """The folder that this installation writes to."""
    stop: threading.Event
    """Set when the job is to stop, for one that cannot end at a page."""
    download_hours: float
    """The time for which a document is kept for its download."""
    backup_days: int | None
    """The time for which backups of data keys are kept; None where nobody said."""
    spread_from: float
    """The number of fragments from which work over all of them is spread over Spark's tasks."""

    @property
    def plan(self) -> WorkerPlan: ...
    @property
    def runner(self) -> JobRunner: ...
    @property
    def downloads(self) -> Downloads: ...
    @property
    def sandboxes(self) -> list[str]:
        """Names of the sandboxes, which have copies of persons."""
        ...

    @property
    def names(self) -> TombstoneNames: ...

    def resources(self, notes: bool = True) -> WorkerResources:
        """The stores, once the keyring is known to be theirs. With `notes` the keyring is noted with the
        profiles."""
        ...

    def keys(self) -> tuple[RotatingKeyProvider, DataKeyStore]:
        """The keyring and the data keys, once it is known to be theirs."""
        ...

    @property
    def reader(self) -> ProfileReader:
        """Reads what `clearance` sees, under the pinned snapshot."""
        ...

    @property
    def pinned(self) -> PinnedSnapshot:
        """The newest snapshot, or if there is none at all one under which every value is protected."""
        ...

    def snapshot_for(self, work: str) -> MetadataSnapshot:
        """The newest snapshot. Raises MetadataError, which names the `work`, where there is none."""
        ...

    def policies(self, kind: JobKind) -> IndexPolicies:
        """The policies of the index at any time."""
        ...

    def index_versions(self) -> IndexVersions: ...
    def dead_letter_search(self) -> DeadLetterSearch: ...
    def households(self) -> HouseholdLog: ...
    def erasure(self) -> Erasure: ...
    def source(self, name: str) -> SourceConfig:
        """A configured source. Raises ConfigError."""
        ...

    def flow(self, name: str, source: SourceConfig) -> BesideFlow: ...
    def spark(self, name: str) -> AbstractContextManager[Any]:
        """A Spark session beside the flows, for work of this name, as a context manager that starts it. Raises ConfigError
        where none can run."""
        ...

    def check(self, document: IdentityRules | SpecDefinition) -> None:
        """Raises SpecError or RefusedRequestError for a document that the metadata service would refuse."""
        ...

    def protected_places(self, definition: SpecDefinition) -> Mapping[Place, bool]:
        """Places of a spec's input that an earlier version protected, each with whether a keyed hash of its values may name
        persons. Raises MetadataError where that is not known."""
        ...

    def send(self, changes: list[SchemaChange]) -> None:
        """Send schema changes to the metadata service; they are safe when it returns. Raises MetadataError."""
        ...

    def deliver(self, document: bytes, fragments: Sequence[str]) -> None:
        """Hand a document to the requester of the job. A service keeps it for a download; it goes with these
        fragments."""
        ...

    def keep(self, found: Mapping[str, Any], is_durable: bool = False) -> None:
        """Keep the result of the job, for callers who ask a service for it; `is_durable`: beyond the end of
        its process."""
        ...

    def report(self, text: str) -> None:
        """Report on the work to the requester, if they listen."""
        ...


def rate_of(parameters: StrictDocument) -> int | None:
    """The most units per second that the parameters allow."""
    return getattr(parameters, "rate", None)


def page_of(most: int, rate: int | None) -> int:
    """The number of units in a page: at most those of a second."""
    return min(most, rate or most)


def without(names: Sequence[str]) -> Callable[[JobRecord], Mapping[str, Any]]:
    """Shows all parameters but these."""
    return lambda record: {name: value for name, value in record.what.items() if name not in names}
