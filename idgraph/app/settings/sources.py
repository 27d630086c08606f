"""`[[sources]]` of the configuration: of which kinds they are, and which may be in one flow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from ingestion.sources.configuration import FileSource
from ingestion.sources.kafka.configuration import KafkaSettings, KafkaSource


def _kind_of(source: Any) -> Any:
    return source.get("kind", "files") if isinstance(source, dict) else getattr(source, "kind", None)


Source = Annotated[
    Annotated[FileSource, Tag("files")] | Annotated[KafkaSource, Tag("kafka")],
    Discriminator(
        _kind_of, custom_error_type="kind", custom_error_message="kind must be one of: files, kafka"
    ),
]


def require_one_flow(sources: Sequence[FileSource | KafkaSource]) -> None:
    """Raises ValueError for sources that cannot be read by one query."""
    if len({source.kind for source in sources}) > 1:
        raise ValueError(
            "a flow reads either files or topics of one Kafka cluster; give each kind a configuration with a "
            "[flow] name of its own and the same directory"
        )
    topics = [topic for source in sources if isinstance(source, KafkaSource) for topic in source.topics]
    if len(topics) != len(set(topics)):
        raise ValueError("two sources have the same topic")


def require_registry(sources: Sequence[FileSource | KafkaSource], kafka: KafkaSettings) -> None:
    """Raises ValueError for a source whose schemas nobody has."""
    for source in sources:
        if isinstance(source, KafkaSource) and source.format == "registry" and kafka.registry.url is None:
            raise ValueError(f"source {source.name} has the format registry, but [kafka.registry] has no url")


def absolute(source: FileSource | KafkaSource, base: Path) -> FileSource | KafkaSource:
    """A source whose paths, if it has any, do not depend on the current folder."""
    decryptor = source.decryptor
    if decryptor is not None:
        files = {
            name: base / file for name in ("token_file", "ca_file") if (file := getattr(decryptor, name))
        }
        source = source.model_copy(update={"decryptor": decryptor.model_copy(update=files)})
    if not isinstance(source, FileSource):
        file = source.schema_file
        return source.model_copy(update={"schema_file": base / file}) if file else source
    # Without `..`: Spark names the files that it finds without it.
    return source.model_copy(update={"path": Path(os.path.abspath(base / source.path))})  # noqa: PTH100 - links stay
