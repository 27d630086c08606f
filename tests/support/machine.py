"""The production shape on this machine: Kafka, DynamoDB Local, Elasticsearch and the metadata service in one folder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters import indexes, stores
from idgraph.app.demo.example import Example
from idgraph.app.metadata_server import serving_here
from idgraph.app.settings.document import Settings, load
from idgraph.model.kafka import kafka_sources
from metadata_service.documents.reading import read_attributes, read_definition
from tests.support.kafka import kafka
from tests.support.processes import free_port
from tests.support.stores import dynamodb, elasticsearch

PARTITIONS = 2
"""Of each topic."""

_CONFIG = """\
directory = "state"

[metadata]
url = "http://127.0.0.1:{metadata}"

[kafka]
bootstrap_servers = "127.0.0.1:{kafka}"

[store]
kind = "dynamodb"
region = "eu-central-1"
endpoint = "http://127.0.0.1:{dynamodb}"

[index]
kind = "elasticsearch"
url = "http://127.0.0.1:{elasticsearch}"
replicas = 0

[flow]
name = "dev"

[[sources]]
name = "segment"
kind = "kafka"
topics = ["segment"]
type = {{ path = "type" }}

[[sources]]
name = "amplitude"
kind = "kafka"
topics = ["amplitude"]
type = {{ path = "event_type" }}

[[sources]]
name = "orders"
kind = "kafka"
topics = ["orders"]
type = {{ const = "order" }}
"""


class MachineShape(NamedTuple):
    """All but the flow: the configuration, and the servers' processes by name."""

    config: Path
    settings: Settings
    servers: dict[str, subprocess.Popen[bytes]]


@contextmanager
def started(folder: Path) -> Iterator[MachineShape]:
    """All but the flow, ready for it, as long as the context lives. With the same folder it continues with its data.

    Raises ConfigError and ServerUnavailableError for what is missing on this machine.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "idgraph.toml"
    if not config.exists():
        names = ("metadata", "kafka", "dynamodb", "elasticsearch")
        config.write_text(_CONFIG.format(**{name: free_port() for name in names}))
    settings = load(config)
    with ExitStack() as stack:
        broker = stack.enter_context(kafka(folder / "kafka", _port(f"//{settings.kafka.bootstrap_servers}")))
        tables = stack.enter_context(
            dynamodb(folder / "dynamodb", persistent=True, port=_port(settings.store.endpoint or ""))
        )
        node = stack.enter_context(elasticsearch(folder / "elasticsearch", _port(settings.index.url)))
        _prepare(settings)
        stack.enter_context(serving_here(settings, _port(settings.metadata.url)))
        _declare(settings)
        servers = {"Kafka": broker.process, "DynamoDB Local": tables.process, "Elasticsearch": node.process}
        yield MachineShape(config, settings, servers)


def _port(url: str) -> int:
    return urlsplit(url).port or 0


def _prepare(settings: Settings) -> None:
    """Keyring, tables, index and topics, unless they exist."""
    from benchmarks.topics import make_topics
    from sinks.keyring.provider import KeyringFile

    wiring.prepare_directory(settings)
    if not settings.keyring_file().exists():
        KeyringFile.create(settings.keyring_file())
    stores.create(settings)
    indexes.create(settings)
    topics = [
        topic for source in kafka_sources(settings.sources_by_name()).values() for topic in source.topics
    ]
    make_topics(settings.kafka.bootstrap_servers, topics, PARTITIONS)


def _declare(settings: Settings) -> None:
    """The example's attributes and specs, unless the service has specs."""
    with metadata_access.metadata_client(settings) as client:
        if any(True for _ in client.list_specs()):
            return
        example = Example("retail")
        attributes = example.attributes()
        for definition, _, _ in read_attributes(attributes) if attributes else ():
            client.put_attribute(definition, "tests")
        for spec in example.specs():
            client.put_spec(read_definition(spec), "tests")
