"""Configuration of sources and flows: typed, validated, every key documented."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from idgraph.model.documents import SettingsTable
from idgraph.model.transport import require_private

# Globs of files, as far as Hadoop, which finds the files, and `fnmatch`, which names their source, read them alike.
_GLOB = frozenset("*?[")
# Hadoop takes `{a,b}` for either of both, a backslash for an escape and `[^a]` for `[!a]`, and refuses a `[` without end,
# a range of a range and one that ends before it begins; for fnmatch all of them are characters like others, or nothing.
_MEMBER = r"[^\[\]{}\\,-]"
_SET = rf"\[(?!\^|!\])!?-?(?:{_MEMBER}(?:-{_MEMBER})?)+-?\]"
_READ_ALIKE = re.compile(rf"(?:[^\[{{}}\\,]|{_SET})*")
_RANGE = re.compile(rf"({_MEMBER})-({_MEMBER})")


def require_name(value: object) -> object:
    """Raises ValueError for a path that is empty: a variable that is not set, and not meant to be the folder of now."""
    if value == "":
        raise ValueError("it is empty; '.' is the folder of the configuration")
    return value


def is_glob(path: Path) -> bool:
    """Whether a source's path is a glob of files rather than a directory."""
    return any(character in _GLOB for character in path.name)


def require_plain_glob(path: Path) -> None:
    """Raises ValueError for a glob that may find other files than those it is taken for."""
    if not is_glob(path):
        return
    ranges = [each for found in re.findall(_SET, path.name) for each in _RANGE.findall(found)]
    if not _READ_ALIKE.fullmatch(path.name) or any(first > last for first, last in ranges):
        raise ValueError(
            f"the glob {path.name} may have *, ? and sets such as [ab], [a-z] or [!a], and no braces, commas, backslashes or "
            "[^a]; give what braces distinguish as several sources, or a directory"
        )


class DecryptorConfig(SettingsTable):
    """The HTTP service that decrypts the records of one source."""

    url: str = Field(
        pattern=r"^https?://[^/@\s]+(/\S*)?$",
        description="URL that receives a record by POST and answers with the plaintext.",
    )
    capacity: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="Most records of a task that are with the service, or wait for an earlier one.",
    )
    timeout_seconds: float = Field(default=5.0, gt=0, description="Timeout of a whole answer.")
    retries: int = Field(
        default=5,
        ge=0,
        description="Retries of a record after an outage, a timeout, 408, 429 or 5xx, each after a longer random pause"
        " of at most 2 s.",
    )
    on_failure: Literal["stop", "dead_letter", "pass_on"] = Field(
        default="stop",
        description="For a record that cannot be decrypted. `stop`: the micro-batch is retried, then the flow stops; a"
        " refused record (400, 413, 422) becomes a dead letter. `dead_letter`: it becomes a dead letter as"
        " it arrived. `pass_on`: the spec gets it as it arrived, with `^undecrypted`.",
    )
    token_file: Path | None = Field(
        default=None, description="File with a bearer token, read by each worker."
    )
    ca_file: Path | None = Field(
        default=None, description="PEM file of trusted authorities for https. Default: the system's."
    )

    allow_plain_http: bool = Field(
        default=False,
        description="Whether records may travel by plain HTTP beyond this machine, because something else encrypts.",
    )

    @model_validator(mode="after")
    def _is_private(self) -> Self:
        require_private(self.url, self.allow_plain_http)
        return self

    @field_validator("url")
    @classmethod
    def _is_whole(cls, url: str) -> str:
        if url.partition("://")[2][:1] in ("", ":"):
            raise ValueError("not a URL of a service; it looks like https://HOST:PORT/PATH")
        return url


class ValuePlace(SettingsTable):
    """Place of an envelope's field: exactly one of these keys."""

    path: str | None = Field(default=None, min_length=1, description="Dotted path in the record.")
    const: str | int | None = Field(default=None, description="A constant for all records.")
    content: bool = Field(default=False, description="A hash of the record's bytes; only for `id`.")
    key: bool = Field(default=False, description="The key of a record in a topic, as text.")
    header: str | None = Field(
        default=None,
        min_length=1,
        description="A header of a Kafka record or property of a Pulsar message, as text; the last one of that name.",
    )
    producer: bool = Field(default=False, description="The name of a Pulsar message's producer.")
    timestamp: bool = Field(
        default=False,
        description="The timestamp of a record in a topic, in epoch milliseconds; only for `ordinal`. A producer's retry can"
        " have another timestamp.",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [self.path is not None, self.const is not None, self.header is not None]
        if sum([*given, self.content, self.key, self.producer, self.timestamp]) != 1:
            raise ValueError("give exactly one of: path, const, content, key, header, producer, timestamp")
        return self

    def is_carried(self) -> bool:
        """Whether it is beside the payload, which only records of topics have."""
        return self.key or self.producer or self.timestamp or self.header is not None


class SourceConfig(SettingsTable):
    """One source: its name, and the places of the envelope's fields in its records."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-]{0,63}$", description="Name of the source.")
    source: ValuePlace | None = Field(
        default=None, description="The event's source. Default: the name of this source."
    )
    type: ValuePlace = Field(default=ValuePlace(const="event"), description="The event's type.")
    id: ValuePlace | None = Field(
        default=None, description="The event's id. Not needed if the mapping spec names its path."
    )
    ordinal: ValuePlace | None = Field(
        default=None,
        description="The order of this source's events: an integer, or RFC 3339 text with an offset. Not needed if the"
        " mapping spec names its path.",
    )
    ordinal_unit: Literal["epoch_ms", "sequence"] = Field(
        default="epoch_ms", description="Unit of the ordinal. Only `epoch_ms` is checked against the future."
    )
    payload: str = Field(
        default="", description="Dotted path of the part that the spec maps; empty: the whole record."
    )
    decryptor: DecryptorConfig | None = Field(
        default=None, description="The service that decrypts the records."
    )

    @model_validator(mode="after")
    def _places_fit(self) -> Self:
        for name in ("source", "type", "ordinal"):
            place: ValuePlace | None = getattr(self, name)
            if place is not None and place.content:
                raise ValueError(f"{name} cannot come from the record's content hash; only id can")
        if self.id is not None and self.id.const is not None:
            raise ValueError("id cannot be the same for every record")
        for name in ("source", "type", "id"):
            place = getattr(self, name)
            if place is not None and place.timestamp:
                raise ValueError(f"{name} cannot be the record's timestamp; only ordinal can")
        return self


class EventSources(NamedTuple):
    """Names of sources as events have them. `are_all`: no event brings its own."""

    names: frozenset[str]
    are_all: bool

    @classmethod
    def of(cls, sources: Iterable[SourceConfig]) -> Self:
        """Those of a configuration."""
        names: set[str] = set()
        are_all = True
        for each in sources:
            if each.source is None:
                names.add(each.name)
            elif each.source.const is not None:
                names.add(str(each.source.const))
            else:
                are_all = False
        return cls(frozenset(names), are_all)


class FileSource(SourceConfig):
    """A source that publishes files."""

    kind: Literal["files"] = Field(default="files", description="Files in a directory.")
    path: Path = Field(
        description="A directory of JSON Lines files (also .gz), or a glob of such files; relative to the "
        "configuration file. Rename new files into place; names that start with . or _ are ignored."
    )
    hash_file_names: bool = Field(
        default=False,
        description="Positions show keyed hashes of all file names. Without it, only names with detected personal data"
        " are hashed.",
    )
    follow_links: bool = Field(
        default=False,
        description="Follow symbolic links to files, except into idgraph's own folder. Without it, a linked file becomes a dead "
        "letter, so write access to the directory does not give read access to other files.",
    )

    @field_validator("path", mode="before")
    @classmethod
    def _is_given(cls, value: object) -> object:
        return require_name(value)

    @field_validator("path")
    @classmethod
    def _is_read_alike(cls, value: Path) -> Path:
        require_plain_glob(value)
        return value

    @model_validator(mode="after")
    def _has_no_carrier(self) -> Self:
        for name in ("source", "type", "id", "ordinal"):
            place: ValuePlace | None = getattr(self, name)
            if place is not None and place.is_carried():
                raise ValueError(f"{name}: a line of a file has no key, header or timestamp beside it")
        return self


def file_sources(sources: Mapping[str, SourceConfig]) -> dict[str, FileSource]:
    """Those of the sources that publish files."""
    return {name: each for name, each in sources.items() if isinstance(each, FileSource)}


class DeadLetterLimits(SettingsTable):
    """The stop rate: a source with too many dead letters waits, and the flow stops where no other flows."""

    max_rate: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Largest share of dead letters in the window of a source; 1 never stops.",
    )
    minimum: int = Field(default=100, ge=1, description="No source waits for fewer dead letters.")
    window: int = Field(
        default=10_000, ge=1, description="Number of latest events of a source in the window."
    )


_MASTER = re.compile(
    r"local(\[([1-9][0-9]*|\*)( *, *[1-9][0-9]*)?\])?|local-cluster\[.+\]|(spark|k8s|mesos)://.+|yarn"
)
_SIZE = re.compile(r"([1-9][0-9]{0,9})([mgMG])")
_SHIFTS = {"m": 20, "g": 30}
_LEAST_MEMORY = 512 << 20


FLOW_NAME = r"^[A-Za-z0-9][A-Za-z0-9_\-]{0,63}$"


class FlowConfig(SettingsTable):
    """One flow: a set of sources that run as one Structured Streaming query."""

    name: str = Field(default="main", pattern=FLOW_NAME, description="Name of the flow.")
    master: str = Field(
        default="local[2]",
        description="Spark master: `local[N]` for N cores of this machine, or the URL of a cluster "
        "([cluster.md](cluster.md)).",
    )
    driver_memory: str = Field(default="1g", description="Heap of the Spark driver.")
    partitions: int = Field(default=2, ge=1, le=10_000, description="Commit tasks of a large micro-batch.")
    split_bytes: int = Field(
        default=2 * 1024 * 1024,
        ge=1,
        le=2**40,
        description="A micro-batch with at most this many bytes runs as one task without a shuffle, which halves the "
        "latency. A larger one uses all cores, with tasks of up to sixteen times as many bytes.",
    )
    max_files_per_batch: int = Field(
        default=1000, ge=1, le=10**9, description="Most files in one micro-batch."
    )
    batch_retries: int = Field(
        default=3,
        ge=0,
        description="Retries of a micro-batch after an outage of a store, an unreadable file, conflicts or a killed "
        "worker, each after a longer random pause. Then the failing part becomes dead letters, or the flow"
        " stops.",
    )
    trigger_seconds: float = Field(
        default=0.0,
        ge=0,
        description="Least seconds between two starts of micro-batches; 0: start as soon as there is input.",
    )
    combine_events: int = Field(
        default=60_000, ge=1, description="Events that a map task combines before it passes them on."
    )
    strategy: Literal["adaptive", "low_latency", "high_throughput"] = Field(
        default="adaptive",
        description="`low_latency`: each task commits every 1,000 mapped events. `high_throughput`: a micro-batch is "
        "shuffled by fragment and written in large batches. `adaptive`: the first for a micro-batch of one"
        " task, otherwise the second.",
    )
    commit_fragments: int = Field(
        default=8000,
        ge=1,
        description="Most fragments read and written at once; fewer while the store is slow or fails.",
    )
    commit_retries: int = Field(
        default=12,
        ge=0,
        description="Retries of a commit after a conflict or an outage of the store, each after a longer random pause "
        "of at most 1 s.",
    )
    on_failure: Literal["dead_letter", "stop"] = Field(
        default="dead_letter",
        description="For changes of a fragment that cannot be committed: a dead letter, or the flow stops.",
    )
    on_key_service_failure: Literal["stop", "dead_letter"] = Field(
        default="stop",
        description="If the key service fails: `stop` retries the micro-batch, then stops the flow; `dead_letter` "
        "makes dead letters of events that need a key.",
    )
    max_event_bytes: int = Field(
        default=1024 * 1024, ge=1, description="A larger record becomes a dead letter."
    )
    max_future_skew_seconds: int = Field(
        default=86_400,
        ge=0,
        le=100 * 366 * 86_400,
        description="An event whose ordinal, or time for an activity, lies further in the future becomes a dead letter.",
    )
    earliest_year: int = Field(
        default=2001,
        ge=1,
        le=2100,
        description="An event with an ordinal before this year becomes a dead letter, as one in seconds would be.",
    )
    dead_letters: DeadLetterLimits = DeadLetterLimits()

    @property
    def earliest_ordinal(self) -> int:
        """`earliest_year` in epoch milliseconds."""
        return int(datetime(self.earliest_year, 1, 1, tzinfo=UTC).timestamp()) * 1000

    @field_validator("master")
    @classmethod
    def _is_a_master(cls, value: str) -> str:
        if not _MASTER.fullmatch(value):
            raise ValueError("no master of Spark: local[2], local[*], spark://HOST:PORT, k8s://URL or yarn")
        return value

    @field_validator("driver_memory")
    @classmethod
    def _is_a_size(cls, value: str) -> str:
        # Java's own message would not name the key.
        found = _SIZE.fullmatch(value)
        if found is None or int(found[1]) << _SHIFTS[found[2].lower()] < _LEAST_MEMORY:
            raise ValueError("a size such as 1g or 1500m is needed, of 512m at least")
        return value
