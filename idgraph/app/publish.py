"""Publishing events to a source: a file that appears whole, by rename, or records of a topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from idgraph.app.adapters.extras import needing
from idgraph.app.payload_rows import Nulls, batched, lines_of
from idgraph.app.settings.document import Settings, load_of
from idgraph.files import replacing
from idgraph.model import canonical, paths
from idgraph.model.errors import ConfigError
from idgraph.model.pulsar import PulsarSource
from idgraph.model.sources import FileSource, is_glob

if TYPE_CHECKING:
    from sinks.kafka.publisher import KafkaPublisher
    from sinks.pulsar.publisher import PulsarPublisher

EVENTS_PER_FILE = 50_000
Publish = Callable[[Sequence[bytes]], int]
"""Publishes lines, each ending in a line feed."""


@contextmanager
def publisher(
    settings: Settings,
    source: str,
    key: str | None = None,
    written: Callable[[Path], object] = lambda _: None,
) -> Iterator[Publish]:
    """A function that publishes lines to a configured source and returns their number; durable when it
    returns. `key` is the dotted path of the value that becomes the key of a record in a topic. `written` gets each new
    file.

    Raises ConfigError for a source that cannot be published to. The function raises PublishError.
    """
    config = settings.source(source)
    if isinstance(config, FileSource):
        if key is not None:
            raise ConfigError(f"source {source} is files, whose events have no key")

        def as_file(lines: Sequence[bytes]) -> int:
            written(publish_lines(config, lines))
            return len(lines)

        yield as_file
        return
    if len(config.topics) != 1:
        raise ConfigError(f"source {source} has not one topic but several; publish needs to know which")
    keys = paths.split(key) if key else ()
    with topic_publisher(settings, f"source {source}", isinstance(config, PulsarSource)) as opened:
        yield lambda lines: opened.publish(
            config.topics[0], ((_key(line, keys), line.removesuffix(b"\n")) for line in lines)
        )


def publish(
    events: Any,
    source: str,
    config: str | Path | None = None,
    *,
    null: Literal["keep", "delete"] = "keep",
    key: str | None = None,
) -> int:
    """Publish a pandas data frame, an Arrow table or a list of dictionaries to a source: an event per row, a
    key per column. Returns the number of events. The index of a data frame is left out.

    A missing value (NaN, NaT, NA, None) says nothing, and keeps the stored value; with `null="delete"` it
    deletes that. `config` is that of `idgraph.open`, `key` the dotted path of the value that becomes a Kafka
    record's key.

    Raises ConfigError for a source that cannot be published to and for values that no event can have, before
    anything is published, and PublishError.
    """
    lines = list(lines_of(events, Nulls(null)))
    with publisher(load_of(config), source, key) as give:
        return sum(give(some) for some in batched(lines, EVENTS_PER_FILE))


def topic_publisher(settings: Settings, user: str, is_pulsar: bool) -> KafkaPublisher | PulsarPublisher:
    """A producer of the configured cluster. Raises ConfigError, which names its `user`."""
    if is_pulsar:
        with needing("pulsar", f"{user}: Pulsar needs pulsar-client"):
            from sinks.pulsar.publisher import PulsarPublisher
        return PulsarPublisher(settings.pulsar)
    with needing("kafka", f"{user}: Kafka needs confluent-kafka"):
        from sinks.kafka.publisher import KafkaPublisher
    return KafkaPublisher(settings.kafka.bootstrap_servers, settings.kafka.producer_options())


def _key(line: bytes, keys: tuple[str, ...]) -> bytes | None:
    """The key of a record: text as it is, another value as JSON. None without a value, and for a line that is
    no JSON, which the flow checks."""
    if not keys:
        return None
    try:
        value = paths.value_at(canonical.decode(line), keys)
    except canonical.MalformedJSON:
        return None
    return None if value is None else value.encode() if isinstance(value, str) else canonical.encode(value)


def publish_lines(source: FileSource, lines: Iterable[bytes]) -> Path:
    """Write lines, each ending in a line feed, as one new file of a source; durable when it returns.

    Raises ConfigError for a source that is a glob of files.
    """
    if is_glob(source.path):
        raise ConfigError(
            f"source {source.name} is a glob of files ({source.path.name}); publish needs a directory"
        )
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.jsonl"
    try:
        source.path.mkdir(parents=True, exist_ok=True)
        with replacing(source.path / name) as stream:
            stream.writelines(lines)
    except OSError as error:
        raise ConfigError(f"{source.path}: {error.strerror}") from None
    return source.path / name
