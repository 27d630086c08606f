"""`idgraph dev up`: Kafka, DynamoDB Local, Elasticsearch, the metadata service and the flow on this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from idgraph.app import wiring
from idgraph.app.adapters import indexes, stores
from idgraph.app.adapters.input_streams import SPARK_KAFKA
from idgraph.app.demo.example import EXAMPLES, Example
from idgraph.app.dev.folder import DevFolder, make_folder
from idgraph.app.documents.reading import read_attributes, read_definition
from idgraph.app.jars.maven import JarSet, cache_folder, jars
from idgraph.app.java import require_java
from idgraph.app.metadata_server import serving_here
from idgraph.app.servers.kafka import KAFKA, kafka
from idgraph.app.servers.stores import DYNAMODB_LOCAL, NODE, TRANSPORT, dynamodb, elasticsearch
from idgraph.app.settings.document import Settings
from idgraph.files import owner_only
from idgraph.model.errors import ConfigError, ServerUnavailableError
from idgraph.model.kafka import kafka_sources

if TYPE_CHECKING:
    from ingestion.stages.outcomes import BatchReport

JARS: tuple[JarSet, ...] = (KAFKA, DYNAMODB_LOCAL, NODE, TRANSPORT, SPARK_KAFKA)
CLIENTS = {"dynamodb": "boto3", "elasticsearch": "elasticsearch", "kafka": "confluent_kafka"}
"""What talks to each server, by the extra that brings it."""
PARTITIONS = 2
"""Of a topic that is made."""
EXAMPLE = "retail"
WATCH_SECONDS = 1.0
"""Between looks whether a server has ended."""


def up(folder: Path, stop: threading.Event, on_batch: Callable[[BatchReport], None]) -> None:
    """Start all and run the flow until `stop` is set; then stop all. Run again, it goes on with what is there.

    Raises ConfigError and ServerUnavailableError for what is missing on this machine, AlreadyRunningError, and
    whatever stopped the flow.
    """
    from idgraph.app.flow_runner import run_flow
    from ingestion.sources.stream import Intake

    with started(folder, stop) as shape:
        _suggest(shape.dev, shape.declared)
        run_flow(shape.dev.settings, stop, Intake(), on_batch)


class MachineShape(NamedTuple):
    """What `up` has started besides the flow: the servers' processes by name; whether the metadata service has specs."""

    dev: DevFolder
    servers: dict[str, subprocess.Popen[bytes]]
    declared: bool


@contextmanager
def started(folder: Path, stop: threading.Event) -> Iterator[MachineShape]:
    """All but the flow, ready for it, as long as the context lives. Raises what `up` raises, and KeyboardInterrupt when
    `stop` is set meanwhile."""
    from idgraph.files import exclusive_lock

    require_parts()
    folder = folder.resolve()
    with ExitStack() as stack:
        stack.enter_context(owner_only())
        make_folder(folder)
        stack.enter_context(exclusive_lock(folder))
        dev = DevFolder(folder)
        try:
            servers = _start(stack, dev, stop)
        except ServerUnavailableError as error:
            raise ServerUnavailableError(f"{error}; the ports are those of {dev.config}") from None
        _prepare(dev.settings)
        _unless(stop)
        _say(
            f"metadata service on {stack.enter_context(serving_here(dev.settings, dev.ports()['metadata']))}"
        )
        yield MachineShape(dev, servers, _declare(dev.settings))


def require_parts() -> None:
    """Java, the clients and the jars, which are fetched if they are not there. Raises ConfigError with the command
    that gets what is missing."""
    require_java()
    if missing := [extra for extra, module in CLIENTS.items() if find_spec(module) is None]:
        from idgraph.app.package import install_command

        modules = " and ".join(CLIENTS[extra] for extra in missing)
        raise ConfigError(f"{modules} not installed; install with\n  {install_command(*missing)}")
    fetch()


def fetch() -> Path:
    """Fetch all that `up` needs from Maven Central; gives the folder. Raises ConfigError."""
    missing = [wanted.name for wanted in JARS if not (cache_folder() / wanted.name).is_dir()]
    if missing:
        _say(f"fetching from Maven Central, once: {', '.join(missing)}")
    # Ivy asks for one file after another and mostly waits.
    with ThreadPoolExecutor(len(JARS)) as pool:
        list(pool.map(jars, JARS))
    return cache_folder()


def _start(stack: ExitStack, dev: DevFolder, stop: threading.Event) -> dict[str, subprocess.Popen[bytes]]:
    ports = dev.ports()
    broker = stack.enter_context(kafka(dev.data("kafka"), ports["kafka"]))
    _say(f"Kafka on {broker.bootstrap_servers}")
    _unless(stop)
    tables = stack.enter_context(dynamodb(dev.data("dynamodb"), persistent=True, port=ports["dynamodb"]))
    _say(f"DynamoDB Local on {tables.url}")
    _unless(stop)
    node = stack.enter_context(elasticsearch(dev.data("elasticsearch"), ports["elasticsearch"]))
    _say(f"Elasticsearch on {node.url}")
    _unless(stop)
    servers = {"Kafka": broker.process, "DynamoDB Local": tables.process, "Elasticsearch": node.process}
    stack.enter_context(_watched(dict(servers), dev.path))
    return servers


@contextmanager
def _watched(servers: dict[str, subprocess.Popen[bytes]], folder: Path) -> Iterator[None]:
    """Reports, while the block runs, of a server that ends: the flow only knows that nobody answers."""
    done = threading.Event()

    def watch() -> None:
        while servers and not done.wait(WATCH_SECONDS):
            for name in [name for name, process in servers.items() if process.poll() is not None]:
                del servers[name]
                _say(f"{name} has ended (its log is in {folder}); Ctrl-C, then start again: nothing is lost")

    thread = threading.Thread(target=watch, name="servers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _prepare(settings: Settings) -> None:
    """What production makes once: keyring, tables, index, topics. What is there stays."""
    from sinks.kafka.topics import make_topics
    from sinks.keyring.provider import KeyringFile

    wiring.prepare_directory(settings)
    if not settings.keyring_file().exists():
        KeyringFile.create(settings.keyring_file())
    stores.create(settings)
    indexes.create(settings)
    topics = [
        topic for source in kafka_sources(settings.sources_by_name()).values() for topic in source.topics
    ]
    make_topics(settings.kafka.bootstrap_servers, topics, PARTITIONS, replicas=1)


def _declare(settings: Settings) -> bool:
    """Give a service that knows no spec yet those of the example; whether they are there."""
    with wiring.metadata_client(settings) as client:
        if any(True for _ in client.list_specs()):
            return True
        if not (EXAMPLES / EXAMPLE).is_dir():
            return False
        example = Example(EXAMPLE)
        attributes = example.attributes()
        for definition, _, _ in read_attributes(attributes) if attributes else ():
            client.put_attribute(definition, "dev up")
        for spec in example.specs():
            client.put_spec(read_definition(spec), "dev up")
        return True


def _suggest(dev: DevFolder, declared: bool) -> None:
    program = shlex.join([_program(), "-c", str(dev.config)])
    data = EXAMPLES / EXAMPLE / "data" / "segment.jsonl.gz"
    # Not the whole file: through DynamoDB Local go some two hundred events a second.
    some = f"gzip -cd {shlex.quote(str(data))} | head -n 1000 | {program} publish segment --key userId"
    lines = [
        some if data.exists() else f"{program} publish segment FILE --key userId",
        f"{program} flows                     # what was taken of each topic, and what waits",
        f"{program} lookup user_id:1540",
        f"{program} search 'demographics.age>=65' --limit 2",
    ]
    if not declared:
        lines.insert(0, f"{program} specs apply FILE          # there is no mapping spec yet")
    _say("\nIn another terminal:\n\n  " + "\n  ".join(lines))
    _say(f"\nSources and topics are in {dev.config}. Ctrl-C stops all; what is there stays.")
    _say("starting Spark and the flow")


def _program() -> str:
    return str(Path(sys.argv[0]).resolve()) if "/" in sys.argv[0] else "idgraph"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _unless(stop: threading.Event) -> None:
    """Raises KeyboardInterrupt when it was asked to stop before the flow was there to be stopped."""
    if stop.is_set():
        raise KeyboardInterrupt
