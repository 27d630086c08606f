"""Configuration of sources in Apache Pulsar, and positions in its topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, Self, cast

from pydantic import AwareDatetime, Field, field_validator, model_validator

from idgraph.model.documents import SettingsTable
from idgraph.model.errors import ConfigError
from idgraph.model.events import PULSAR
from idgraph.model.sources import SourceConfig
from idgraph.model.topics import TopicSource
from idgraph.model.transport import is_private, require_private

_NAME = r"[A-Za-z0-9_\-=:.]{1,200}"
_TOPIC = re.compile(rf"{_NAME}/{_NAME}/{_NAME}")
_PARTITION = re.compile(r"-partition-\d+")
_DOMAIN = "persistent://"
_POSITION = re.compile(
    rf"{PULSAR}(?P<topic>[^/]+/[^/]+/[^/]+?)(-partition-(?P<partition>\d{{1,9}}))?/(?P<ledger>\d{{1,18}})/(?P<entry>\d{{1,9}})(/\d{{1,9}})?"
)
_PLACE = re.compile(r"(\d{1,10})/(\d{1,8})")

WHOLE = -1
"""The partition of a topic that has none."""

_ENTRY_BITS = 28


def position(ledger: int, entry: int) -> int:
    """A place in a partition as one number that orders as places do: `ledger * 2**28 + entry`, as in Pulsar's own
    `MessageIdUtils`."""
    return (ledger << _ENTRY_BITS) + entry


def place(at: int) -> tuple[int, int]:
    """The inverse of `position`: ledger and entry."""
    return at >> _ENTRY_BITS, at & ((1 << _ENTRY_BITS) - 1)


def written(at: int) -> str:
    """A position as `LEDGER/ENTRY`."""
    return "/".join(map(str, place(at)))


def partition_name(topic: str, partition: int) -> str:
    """The name of a partition, `TENANT/NAMESPACE/TOPIC-partition-N`; of a topic that has none, its own."""
    return topic if partition == WHOLE else f"{topic}-partition-{partition}"


def record_position(topic: str, partition: int, at: object) -> str:
    """The position of the message at `LEDGER/ENTRY/BATCH`."""
    return f"{PULSAR}{partition_name(topic, partition)}/{at}"


class MessagePlace(NamedTuple):
    """The entry of a message."""

    topic: str
    partition: int
    at: int


def message_place(text: str) -> MessagePlace | None:
    """The place of a position; None for another text. A position without the number in the batch is one, too."""
    found = _POSITION.fullmatch(text)
    if found is None:
        return None
    at = position(int(found["ledger"]), int(found["entry"]))
    return MessagePlace(found["topic"], int(found["partition"] or WHOLE), at)


Bound = Literal["earliest", "latest"] | datetime | MessagePlace


def bound(text: str) -> Bound:
    """Where a range of messages begins or ends. Raises ConfigError."""
    if text in ("earliest", "latest"):
        return cast(Bound, text)
    if place := message_place(text):
        return place
    with suppress(ValueError):
        if (moment := datetime.fromisoformat(text)).tzinfo is not None:
            return moment
    raise ConfigError(
        f"{text} is no place in topics; give earliest, latest, a time such as 2026-01-31T00:00:00Z, or "
        f"{PULSAR}TOPIC-partition-N/LEDGER/ENTRY"
    )


def full_name(topic: str) -> str:
    """`TENANT/NAMESPACE/TOPIC` of a name that Pulsar's tools accept."""
    name = topic.removeprefix(_DOMAIN)
    return name if "/" in name else f"public/default/{name}"


class PulsarSource(TopicSource):
    """A source whose messages are in topics of the cluster that `[pulsar]` names. Topics are `TENANT/NAMESPACE/TOPIC`."""

    kind: Literal["pulsar"] = Field(description="Messages in topics.")
    namespace: str = Field(
        default="public/default",
        pattern=rf"^{_NAME}/{_NAME}$",
        description="With `topic_pattern`: `TENANT/NAMESPACE` of the topics; the pattern is for the rest of the name.",
    )

    @field_validator("topics")
    @classmethod
    def _are_full(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(full_name, topics))

    @staticmethod
    def is_name(topic: str) -> bool:
        """Whether a persistent topic of Pulsar can be called so. A partition is no topic of its own."""
        return _TOPIC.fullmatch(topic) is not None and _PARTITION.search(topic) is None

    def matches(self, topic: str) -> bool:
        """Whether a topic is in the namespace and the rest of its name matches `topic_pattern`."""
        return topic.startswith(f"{self.namespace}/") and super().matches(topic[len(self.namespace) + 1 :])


class PulsarSettings(SettingsTable):
    """The cluster of the flow's topics."""

    service_url: str = Field(
        default="pulsar://127.0.0.1:6650",
        pattern=r"^pulsar(\+ssl)?://[^/@\s]+$",
        description="`pulsar://HOST:PORT` of some brokers or of the proxy, separated by commas; `pulsar+ssl://` for TLS.",
    )
    admin_url: str = Field(
        default="http://127.0.0.1:8080",
        pattern=r"^https?://[^/@\s]+$",
        description="URL of the admin REST interface, which says where topics end.",
    )
    token_file: Path | None = Field(
        default=None, description="File with a token (JWT), read by the driver and each worker."
    )
    certificate_file: Path | None = Field(
        default=None, description="PEM file with the client's certificate for TLS authentication."
    )
    certificate_key_file: Path | None = Field(default=None, description="PEM file with its private key.")
    ca_file: Path | None = Field(
        default=None, description="PEM file of trusted authorities. Default: the system's."
    )
    allow_plain_text: bool = Field(
        default=False,
        description="Whether token and messages may travel without TLS beyond this machine, because something else encrypts.",
    )
    starting_position: Literal["earliest", "latest"] | AwareDatetime | dict[str, dict[str, str]] = Field(
        default="earliest",
        description="Start of a flow without a checkpoint: earliest, latest, a time (RFC 3339: the first message published "
        "since), or `LEDGER/ENTRY` of the first message by topic and partition (-1: a topic without partitions); "
        "others begin at the earliest.",
    )
    max_bytes_per_batch: int = Field(
        default=16 << 20,
        ge=1,
        description="Most stored (compressed) bytes of one micro-batch, over all partitions, but at least one entry of each.",
    )
    answer_seconds: float = Field(
        default=30.0, gt=0, description="Seconds after which a broker that does not answer counts as away."
    )

    @field_validator("starting_position")
    @classmethod
    def _are_places(cls, value: object) -> object:
        if isinstance(value, dict):
            for topic, places in value.items():
                for partition, each in places.items():
                    if not _PLACE.fullmatch(each) or not partition.removeprefix("-").isdecimal():
                        raise ValueError(f"{topic}.{partition} is not PARTITION = LEDGER/ENTRY")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.certificate_file is None) is not (self.certificate_key_file is None):
            raise ValueError("certificate_file and certificate_key_file belong together")
        if self.token_file or self.certificate_file:
            require_private(self.admin_url, self.allow_plain_text)
            for each in self.service_url.removeprefix("pulsar://").split(","):
                if not self.service_url.startswith("pulsar+ssl") and not is_private(f"http://{each}"):
                    require_private(f"http://{each}", self.allow_plain_text)
        return self

    def starts(self) -> dict[str, dict[int, int]]:
        """The configured positions by topic and partition; empty for another kind of start."""
        if not isinstance(self.starting_position, dict):
            return {}
        return {
            full_name(topic): {
                int(partition): position(*map(int, each.split("/"))) for partition, each in places.items()
            }
            for topic, places in self.starting_position.items()
        }


def pulsar_sources(sources: Mapping[str, SourceConfig]) -> dict[str, PulsarSource]:
    """Those of the sources that are in Pulsar."""
    return {name: each for name, each in sources.items() if isinstance(each, PulsarSource)}
