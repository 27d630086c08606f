"""Index upkeep: the versions of the index, its feed from the store's stream, and the metadata that it follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.indexes import open_versions
from idgraph.app.adapters.key_providers import ensure_keyring, provider_of
from idgraph.app.adapters.stores import place, worker_config
from idgraph.files import exclusive_lock, write_atomically
from idgraph.model.errors import ConfigError, MetadataError
from idgraph.projection.documents import IndexPolicies
from idgraph.projection.stream_following import StreamFollowing
from idgraph.snapshot_file import kept_snapshot
from ingestion.metadata.follower import SnapshotFollower

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.snapshots import MetadataSnapshot


@contextmanager
def opened_versions(settings: Settings) -> Iterator[IndexVersions]:
    """The versions of the index, closed at the end. Raises ConfigError."""
    from transforms.privacy.protected_names import TombstoneNames

    ensure_keyring(settings)
    with closing(open_versions(settings, TombstoneNames(provider_of(settings)))) as versions:
        yield versions


@contextmanager
def following(settings: Settings) -> Iterator[StreamFollowing]:
    """The projection by the store's stream, one at a time. Raises ConfigError, MetadataError without a snapshot."""
    if settings.store.kind != "dynamodb":
        raise ConfigError('[store] kind: only a store of kind "dynamodb" has streams')
    place_of_tables = place(worker_config(settings))
    from sinks.dynamodb.streams import DynamoStream

    state = settings.directory / "follow"
    with (
        followed_snapshot(settings, state.name) as newest,
        exclusive_lock(state),
        wiring.opened(settings) as resources,
        closing(DynamoStream(place_of_tables)) as stream,
    ):
        wiring.require_own_keyring(settings, resources, notes=False)
        policies = IndexPolicies(newest)
        projection = resources.projection(lambda: policies().rules)
        yield StreamFollowing(projection, stream)


@contextmanager
def followed_snapshot(settings: Settings, name: str) -> Iterator[Callable[[], MetadataSnapshot]]:
    """Yields a function that returns the newest snapshot; while the service is away, the last one, which is
    kept in a folder of this name. Raises MetadataError when there never was one."""
    wiring.prepare_directory(settings)
    ensure_keyring(settings)
    state = settings.directory / name
    state.mkdir(mode=0o700, exist_ok=True)
    file = state / "snapshot.json"
    last = metadata_access.snapshot_file(settings)
    if last.exists():
        # The last snapshot of a flow is as good, or newer.
        write_atomically(file, last.read_bytes())
    try:
        client = metadata_access.reading_client(settings)
    except ConfigError:
        known = kept_snapshot(file)
        if known is None:
            raise MetadataError("there is no metadata to index by: start the metadata service") from None
        snapshot = known.snapshot
        yield lambda: snapshot
        return
    with closing(client), SnapshotFollower(client, file) as follower:
        yield lambda: follower.current().snapshot
