"""What a flow on a cluster needs that one on this machine does not."""

from __future__ import annotations

from idgraph.app.settings.document import Settings
from idgraph.model.errors import ConfigError
from ingestion.sources.files.ownership import file_sources
from ingestion.spark.configuration import is_local


def require_shared(settings: Settings) -> None:
    """Raises ConfigError for what executors on other machines could not reach or share."""
    if is_local(settings.flow.master):
        return
    cluster = f"[flow] master {settings.flow.master} is a cluster"
    if settings.store.kind == "sqlite":
        raise ConfigError(
            f"{cluster}, whose machines cannot share SQLite files; set [store] kind to dynamodb (docs/dynamodb.md)"
        )
    if settings.index.kind == "sqlite":
        raise ConfigError(
            f"{cluster}, whose machines cannot share an SQLite file; set [index] kind to elasticsearch "
            "(docs/elasticsearch.md)"
        )
    if file_sources(settings.sources_by_name()) and not settings.spark.shared_files:
        raise ConfigError(
            f"{cluster}, whose machines must all see the sources' files; read from Kafka (docs/kafka.md), or set "
            "[spark] shared_files = true if the folders are on a file system that all have under the same paths"
        )
    archive = settings.spark.archive
    if archive is not None and not archive.is_file():
        raise ConfigError(f"[spark] archive: there is no {archive}; make it with `idgraph package {archive}`")
