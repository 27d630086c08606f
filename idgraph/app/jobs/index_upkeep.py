"""The resources of `idgraph reindex`, `idgraph reconcile` and `idgraph index`: one at a time, by today's policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from idgraph.app import wiring
from idgraph.app.adapters.indexes import open_versions
from idgraph.app.adapters.key_providers import ensure_keyring, provider_of
from idgraph.app.adapters.stores import place, worker_config
from idgraph.files import exclusive_lock, write_atomically
from idgraph.jobs.reconcile import IndexReconciliation
from idgraph.jobs.reindex import Reindex
from idgraph.model.errors import ConfigError, MetadataError
from idgraph.projection.documents import IndexPolicies
from idgraph.projection.stream_following import StreamFollowing, StreamPlaces
from idgraph.snapshot_file import kept_snapshot
from ingestion.metadata.follower import SnapshotFollower

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.job import JobRunner
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.snapshots import MetadataSnapshot

Newest = Callable[[], "MetadataSnapshot"]
"""Gives the newest snapshot."""


@contextmanager
def opened_versions(settings: Settings) -> Iterator[IndexVersions]:
    """The versions of the index, closed at the end. Raises ConfigError."""
    from transforms.privacy.protected_names import TombstoneNames

    ensure_keyring(settings)
    with closing(open_versions(settings, TombstoneNames(provider_of(settings)))) as versions:
        yield versions


@contextmanager
def reindexing(
    settings: Settings, page: int, again: bool, newest: Newest | None = None
) -> Iterator[tuple[JobRunner, Reindex]]:
    """The job that makes the index again, and its runner. `newest` is for whoever follows the metadata already. Raises
    ConfigError, MetadataError without a snapshot."""
    with (
        _policies(settings, "reindex", newest) as (_, policies),
        opened_versions(settings) as versions,
        wiring.opened(settings) as resources,
        wiring.job_runner(settings) as runner,
    ):
        wiring.require_own_keyring(settings, resources, notes=False)
        yield runner, Reindex(resources.store, versions, policies, page, again)


@contextmanager
def reconciling(
    settings: Settings, repairs: bool, page: int, newest: Newest | None = None
) -> Iterator[tuple[JobRunner, IndexReconciliation]]:
    """The job that compares index and store, and its runner. Raises as `reindexing` does."""
    with (
        _policies(settings, "reconcile", newest) as (_, policies),
        wiring.opened(settings) as resources,
        wiring.job_runner(settings) as runner,
    ):
        wiring.require_own_keyring(settings, resources, notes=False)
        yield runner, IndexReconciliation(resources.store, resources.index, policies, repairs, page)


@contextmanager
def following(settings: Settings) -> Iterator[StreamFollowing]:
    """The projection by the store's stream. Raises as `reindexing` does."""
    if settings.store.kind != "dynamodb":
        raise ConfigError('[store] kind: only a store of kind "dynamodb" has streams')
    place_of_tables = place(worker_config(settings))
    from sinks.dynamodb.streams import DynamoStream

    with (
        _upkeep(settings, "follow") as (state, policies),
        wiring.opened(settings) as resources,
        closing(DynamoStream(place_of_tables)) as stream,
    ):
        wiring.require_own_keyring(settings, resources, notes=False)
        places = StreamPlaces(state / "places.json")
        projection = resources.projection(lambda: policies().rules)
        yield StreamFollowing(projection, stream, places)


@contextmanager
def _upkeep(settings: Settings, job: str) -> Iterator[tuple[Path, IndexPolicies]]:
    """The same for what runs once at a time and is no job. Raises ConfigError when it is running already."""
    with _policies(settings, job) as (state, policies), exclusive_lock(state):
        yield state, policies


@contextmanager
def _policies(
    settings: Settings, job: str, newest: Newest | None = None
) -> Iterator[tuple[Path, IndexPolicies]]:
    """Where a job keeps its snapshot, and what may be indexed at any time."""
    wiring.prepare_directory(settings)
    ensure_keyring(settings)
    state = settings.directory / job
    state.mkdir(mode=0o700, exist_ok=True)
    if newest is not None:
        yield state, IndexPolicies(newest)
        return
    with followed_snapshot(settings, state) as followed:
        yield state, IndexPolicies(followed)


@contextmanager
def followed_snapshot(settings: Settings, state: Path) -> Iterator[Callable[[], MetadataSnapshot]]:
    """Gives the newest snapshot at any time; while the service is away, what was seen last. Raises MetadataError
    when nothing was ever seen."""
    file = state / "snapshot.json"
    last = wiring.snapshot_file(settings)
    if last.exists():
        # What a flow saw last is as good, or newer.
        write_atomically(file, last.read_bytes())
    try:
        client = wiring.reading_client(settings)
    except ConfigError:
        known = kept_snapshot(file)
        if known is None:
            raise MetadataError("there is no metadata to index by: start the metadata service") from None
        snapshot = known.snapshot
        yield lambda: snapshot
        return
    with closing(client), SnapshotFollower(client, file) as follower:
        yield lambda: follower.current().snapshot
