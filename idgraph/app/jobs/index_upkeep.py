"""What `idgraph reindex`, `idgraph reconcile` and `idgraph index` run on: one at a time, by the policy of now."""

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
from idgraph.jobs.reconcile import Reconciling
from idgraph.jobs.reindex import Reindexing
from idgraph.jobs.resume_points import ResumePoint
from idgraph.model.errors import AlreadyRunningError, ConfigError, MetadataError
from idgraph.projection.documents import IndexPolicies
from idgraph.projection.stream_following import StreamFollowing, StreamPlaces
from idgraph.snapshot_file import kept_snapshot
from ingestion.metadata.follower import SnapshotFollower

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.snapshots import MetadataSnapshot

_POINT = "place.json"


@contextmanager
def opened_versions(settings: Settings) -> Iterator[IndexVersions]:
    """The versions of the index, closed at the end. Raises ConfigError."""
    from transforms.privacy.protected_names import TombstoneNames

    ensure_keyring(settings)
    with closing(open_versions(settings, TombstoneNames(provider_of(settings)))) as versions:
        yield versions


@contextmanager
def reindexing(settings: Settings) -> Iterator[Reindexing]:
    """What makes the index again. Raises ConfigError, also when it runs already, MetadataError without a snapshot."""
    with (
        _upkeep(settings, "reindex") as (state, policies),
        opened_versions(settings) as versions,
        wiring.opened(settings) as resources,
    ):
        wiring.require_own_keyring(settings, resources, notes=False)
        point = ResumePoint(state / _POINT, resources.sealer, "reindex")
        yield Reindexing(resources.store, versions, policies, point)


@contextmanager
def reconciling(settings: Settings, repairs: bool) -> Iterator[Reconciling]:
    """What compares index and store. Raises as `reindexing` does."""
    with _upkeep(settings, "reconcile") as (state, policies), wiring.opened(settings) as resources:
        wiring.require_own_keyring(settings, resources, notes=False)
        point = ResumePoint(state / _POINT, resources.sealer, "reconcile")
        yield Reconciling(resources.store, resources.index, policies, point, repairs)


@contextmanager
def following(settings: Settings) -> Iterator[StreamFollowing]:
    """What projects by the store's stream. Raises as `reindexing` does."""
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
    wiring.prepare_directory(settings)
    ensure_keyring(settings)
    state = settings.directory / job
    state.mkdir(mode=0o700, exist_ok=True)
    try:
        with exclusive_lock(state), followed_snapshot(settings, state) as newest:
            yield state, IndexPolicies(newest)
    except AlreadyRunningError as error:
        raise ConfigError(
            f"`idgraph {job}` is {error}; wait for its end, or stop it: it goes on from there"
        ) from None


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
        client = wiring.metadata_client(settings)
    except ConfigError:
        known = kept_snapshot(file)
        if known is None:
            raise MetadataError("there is no metadata to index by: start the metadata service") from None
        snapshot = known.snapshot
        yield lambda: snapshot
        return
    with closing(client), SnapshotFollower(client, file) as follower:
        yield lambda: follower.current().snapshot
