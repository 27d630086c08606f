"""Configuration of sources whose records are in topics: what Kafka and Pulsar have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from idgraph.model.sources import SourceConfig


class TopicSource(SourceConfig):
    """A source whose records have a key, headers and a timestamp beside their payload."""

    topics: tuple[str, ...] = Field(default=(), description="Names of the topics.")
    topic_pattern: str | None = Field(
        default=None,
        min_length=1,
        description="A regular expression for the whole name of a topic, instead of `topics`; it also matches later "
        "topics.",
    )
    tombstone_type: str = Field(
        default="tombstone",
        min_length=1,
        max_length=200,
        description="Event type of a record without a payload, unless its key or a header gives the type.",
    )

    format: Literal["json", "avro", "protobuf", "registry"] = Field(
        default="json",
        description="Format of the payloads. `avro`, `protobuf`: with `schema_file`. `registry`: in Kafka each payload "
        "begins with its schema's number, and `[kafka.registry]` has the schema; in Pulsar each message names the version of its topic's schema.",
    )
    schema_file: Path | None = Field(
        default=None,
        description="An Avro schema in JSON, or a Protobuf descriptor set (`protoc --include_imports "
        "--descriptor_set_out=FILE`). Relative to the configuration file.",
    )
    message: str | None = Field(
        default=None, min_length=1, description="Full name of the payloads' Protobuf message."
    )

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if (self.schema_file is not None) is not (self.format in ("avro", "protobuf")):
            raise ValueError("schema_file is for the formats avro and protobuf, and needed there")
        if (self.message is not None) is not (self.format == "protobuf"):
            raise ValueError("message is for the format protobuf, and needed there")
        return self

    @model_validator(mode="after")
    def _names_topics(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("give either topics or topic_pattern")
        if wrong := [number for number, topic in enumerate(self.topics) if not self.is_name(topic)]:
            raise ValueError(f"topics.{wrong[0]} is no name of a topic")
        try:
            re.compile(self.topic_pattern or "")
        except re.error as error:
            raise ValueError(f"topic_pattern is no regular expression: {error}") from None
        return self

    @staticmethod
    def is_name(topic: str) -> bool:
        """Whether a topic can be called so."""
        raise NotImplementedError

    def matches(self, topic: str) -> bool:
        """Whether a topic's name matches `topic_pattern`."""
        return self.topic_pattern is not None and re.fullmatch(self.topic_pattern, topic) is not None


class Behind(NamedTuple):
    """The distance from the end of a partition: about how many records, and how long the first of them waits; None where nobody
    says."""

    records: int
    seconds: float | None = None


def topic_sources(sources: Mapping[str, SourceConfig]) -> dict[str, TopicSource]:
    """Those of the sources that are in topics."""
    return {name: each for name, each in sources.items() if isinstance(each, TopicSource)}
