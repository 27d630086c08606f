"""The index behind the protocol: a folder in the directory, or an index in Elasticsearch.

Opened from the worker's configuration (`idgraph.app.adapters.stores.worker_config`): places, never
credentials, which each process finds for itself.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.app.adapters.extras import needing
from idgraph.app.adapters.stores import worker_config
from idgraph.model.errors import ConfigError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.index import ProfileIndex
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.tombstones import TombstoneNames
    from sinks.elasticsearch.client import IndexLocation

FOLDER = "index"


def open_index(config: dict[str, Any], names: TombstoneNames) -> ProfileIndex:
    """The index that the configuration says."""
    if config["index"]["kind"] == "elasticsearch":
        place_of_index = place(config)
        from sinks.elasticsearch.index import ElasticsearchProfileIndex

        return ElasticsearchProfileIndex(place_of_index, names)
    from sinks.tantivy.index import TantivyProfileIndex

    return TantivyProfileIndex(Path(config["directory"]) / FOLDER, names)


def open_versions(settings: Settings, names: TombstoneNames) -> IndexVersions:
    """The versions of the index that the configuration says."""
    config = worker_config(settings)
    if settings.index.kind == "elasticsearch":
        place_of_index = place(config)
        from sinks.elasticsearch.schema import IndexShape
        from sinks.elasticsearch.versions import ElasticsearchIndexVersions

        shape = IndexShape(settings.index.shards, settings.index.replicas)
        return ElasticsearchIndexVersions(place_of_index, names, shape)
    from sinks.tantivy.versions import TantivyIndexVersions

    return TantivyIndexVersions(settings.directory / FOLDER, names)


def place(config: dict[str, Any]) -> IndexLocation:
    """The location of the index. Raises ConfigError when the client for Elasticsearch is not installed."""
    with needing("elasticsearch", "[index] kind: Elasticsearch needs its client"):
        from sinks.elasticsearch.client import IndexLocation
    return IndexLocation(**{each: config["index"][each] for each in IndexLocation._fields})


def create(settings: Settings) -> str | None:
    """Make the index if there is none; returns the name of a new one. Raises ProfileIndexError,
    ConfigError."""
    if settings.index.kind == "sqlite":
        raise ConfigError("[index] kind is sqlite: the embedded index is made when first used")
    where = place(worker_config(settings))
    from sinks.elasticsearch.client import ElasticsearchClient
    from sinks.elasticsearch.schema import IndexShape
    from sinks.elasticsearch.schema import create as create_index

    with closing(ElasticsearchClient(where)) as client:
        return create_index(client, IndexShape(settings.index.shards, settings.index.replicas))


def layouts(settings: Settings) -> set[int]:
    """The formats of the index in Elasticsearch. Raises ProfileIndexError, ConfigError."""
    where = place(worker_config(settings))
    from sinks.elasticsearch.client import ElasticsearchClient
    from sinks.elasticsearch.schema import layouts as found

    with closing(ElasticsearchClient(where)) as client:
        return found(client)
