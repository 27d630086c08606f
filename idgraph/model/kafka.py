"""Configuration of sources in Kafka, and of the one cluster that a flow reads from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from idgraph.model.documents import SettingsTable
from idgraph.model.sources import SourceConfig
from idgraph.model.topics import TopicSource
from idgraph.model.transport import require_private

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OFFSETS_ARE_SPARKS = "the flow's checkpoint says what was taken"
_BYTES_ARE_OURS = "records are read as the bytes that they are"

REFUSED: Mapping[str, str] = {
    "auto.offset.reset": f"{_OFFSETS_ARE_SPARKS}; use starting_offsets",
    "enable.auto.commit": _OFFSETS_ARE_SPARKS,
    "auto.commit.interval.ms": _OFFSETS_ARE_SPARKS,
    "group.id": f"{_OFFSETS_ARE_SPARKS}, and a group that others use too would take records from it",
    "group.instance.id": f"{_OFFSETS_ARE_SPARKS}, no group",
    "key.deserializer": _BYTES_ARE_OURS,
    "value.deserializer": _BYTES_ARE_OURS,
    "interceptor.classes": "an interceptor could change or drop records",
    "isolation.level": "records of transactions that were aborted, or are in progress, are no events",
    "bootstrap.servers": "use bootstrap_servers",
}
"""Options of the consumer that would break that each event is taken, and as it was published, with the reason."""

_SECRET = re.compile(r"password|secret|jaas|credential|token|\.key$|user\.info", re.IGNORECASE)
_QUOTED = re.compile(r'"([^"]*)"')
_SHORTEST = 4
"""A shorter text that is quoted in an option would be in a message by chance."""


class KafkaSource(TopicSource):
    """A source whose records are in topics of the cluster that `[kafka]` names."""

    kind: Literal["kafka"] = Field(description="Records in topics.")

    @staticmethod
    def is_name(topic: str) -> bool:
        """Whether a topic of Kafka can be called so."""
        return _TOPIC.fullmatch(topic) is not None


class RegistrySettings(SettingsTable):
    """The schema registry of sources with the format `registry`."""

    url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/@\s]+(/[^?#\s]*)?$",
        description="URL of the registry: `http://HOST:PORT`, without a password.",
    )
    username: str | None = Field(
        default=None,
        description="User name; the password is in `password_file` or `IDGRAPH_SCHEMA_REGISTRY_PASSWORD`.",
    )
    password_file: Path | None = Field(default=None, description="File with the password.")
    ca_file: Path | None = Field(
        default=None, description="PEM file of trusted authorities for https. Default: the system's."
    )
    allow_plain_http: bool = Field(
        default=False,
        description="Whether the password may travel by plain HTTP beyond this machine, because something else encrypts.",
    )
    on_outage: Literal["wait", "dead_letter"] = Field(
        default="wait",
        description="If the registry is away and a schema is not cached: `wait` retries the micro-batch, then stops "
        "the flow; `dead_letter` makes dead letters.",
    )

    @model_validator(mode="after")
    def _is_private(self) -> Self:
        if self.url and self.username:
            require_private(self.url, self.allow_plain_http)
        return self


class KafkaSettings(SettingsTable):
    """The cluster of the flow's topics, and the options for reading and for `idgraph publish`."""

    bootstrap_servers: str = Field(
        default="127.0.0.1:9092",
        min_length=1,
        description="`HOST:PORT` of some brokers, separated by commas.",
    )
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[str, int]] = Field(
        default="earliest",
        description="Start of a flow without a checkpoint; or one offset per topic and partition (-2 earliest, -1 "
        "latest).",
    )
    max_offsets_per_batch: int = Field(
        default=100_000, ge=1, description="Most offsets of one micro-batch, over all partitions."
    )
    min_offsets_per_batch: int = Field(
        default=1_000,
        ge=1,
        description="Least bound of a micro-batch while stores are slow. Equal to `max_offsets_per_batch`: the bound "
        "is constant.",
    )
    batch_seconds: float = Field(
        default=5.0,
        gt=0,
        description="Target duration of a micro-batch; its bound follows the rate of the last ones. Not used with "
        "`--until-done`.",
    )
    consumer: dict[str, SecretStr] = Field(
        default={},
        description="Further options of the Java consumer, such as `security.protocol`. Set secrets in the "
        "environment: IDGRAPH_KAFKA__CONSUMER='{\"sasl.jaas.config\": ...}'.",
    )
    producer: dict[str, SecretStr] = Field(
        default={},
        description="Further options of librdkafka, which has its own names for security options. For `idgraph "
        "publish`, `idgraph flows`, and records that Spark's connector cannot read.",
    )

    registry: RegistrySettings = RegistrySettings()

    @field_validator("consumer")
    @classmethod
    def _keeps_what_is_promised(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name in options:
            if reason := REFUSED.get(name.removeprefix("kafka.")):
                raise ValueError(f"{name} cannot be set: {reason}")
        return options

    @field_validator("producer")
    @classmethod
    def _writes_once(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name in options:
            if name in ("enable.idempotence", "acks", "request.required.acks", "bootstrap.servers"):
                raise ValueError(f"{name} cannot be set: each event is written once, to all replicas")
        return options

    def producer_options(self) -> dict[str, str]:
        """The options in the clear, only for the client."""
        return {name: value.get_secret_value() for name, value in self.producer.items()}

    def secrets(self) -> frozenset[str]:
        """Texts that no message may show: values of options with a secret's name, and their quoted parts."""
        values = [
            value.get_secret_value()
            for options in (self.consumer, self.producer)
            for name, value in options.items()
            if _SECRET.search(name)
        ]
        quoted = [text for value in values for text in _QUOTED.findall(value) if len(text) >= _SHORTEST]
        return frozenset(text for text in (*values, *quoted) if text)


def kafka_sources(sources: Mapping[str, SourceConfig]) -> dict[str, KafkaSource]:
    """Those of the sources that are in Kafka."""
    return {name: each for name, each in sources.items() if isinstance(each, KafkaSource)}
