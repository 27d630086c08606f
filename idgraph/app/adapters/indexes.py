"""Which index stands behind the protocol: a file in the directory, or an index in Elasticsearch.

Opened from what a worker is told (`idgraph.app.adapters.stores.told_of`): places, never credentials, which each process finds for
itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.app.adapters.stores import told_of
from idgraph.model.errors import ConfigError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.index import ProfileIndex
    from idgraph.model.index_versions import IndexVersions
    from idgraph.model.tombstones import TombstoneNames
    from sinks.elasticsearch.connection import Place

FILE = "index.db"


def open_index(told: dict[str, Any], names: TombstoneNames) -> ProfileIndex:
    """The index that the configuration says."""
    if told["index"]["kind"] == "elasticsearch":
        place_of_index = place(told)
        from sinks.elasticsearch.index import ElasticsearchProfileIndex

        return ElasticsearchProfileIndex(place_of_index, names)
    from sinks.sqlite.index.index import SqliteProfileIndex

    return SqliteProfileIndex(Path(told["directory"]) / FILE, names)


def open_versions(settings: Settings, names: TombstoneNames) -> IndexVersions:
    """The versions of the index that the configuration says."""
    told = told_of(settings)
    if settings.index.kind == "elasticsearch":
        place_of_index = place(told)
        from sinks.elasticsearch.schema import Shape
        from sinks.elasticsearch.versions import ElasticsearchIndexVersions

        shape = Shape(settings.index.shards, settings.index.replicas)
        return ElasticsearchIndexVersions(place_of_index, names, shape)
    from sinks.sqlite.index.versions import SqliteIndexVersions

    return SqliteIndexVersions(settings.directory / FILE, names)


def place(told: dict[str, Any]) -> Place:
    """Where the index is. Raises ConfigError when what talks to Elasticsearch is not installed."""
    try:
        from sinks.elasticsearch.connection import Place
    except ModuleNotFoundError:
        raise ConfigError(
            "[index] kind: Elasticsearch needs its client; install it with `pip install idgraph[elasticsearch]`"
        ) from None
    return Place(**{each: told["index"][each] for each in Place._fields})


def create(settings: Settings) -> str | None:
    """Make the index if there is none; gives the name of a new one. Raises ProfileIndexError, ConfigError."""
    if settings.index.kind == "sqlite":
        raise ConfigError("[index] kind is sqlite, whose file is made when first used")
    where = place(told_of(settings))
    from sinks.elasticsearch.client import ElasticsearchClient
    from sinks.elasticsearch.schema import Shape
    from sinks.elasticsearch.schema import create as create_index

    client = ElasticsearchClient(where)
    try:
        return create_index(client, Shape(settings.index.shards, settings.index.replicas))
    finally:
        client.close()
