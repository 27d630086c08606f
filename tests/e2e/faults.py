"""A flow from Kafka into DynamoDB and Elasticsearch, each server one that can be killed and started again, with a faulty
proxy before the two that the flow writes to; and the same events taken by the same stages with nothing in their way."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from idgraph.app import wiring
from idgraph.app.flow_progress import partition_states
from idgraph.app.settings.document import load
from idgraph.model import canonical
from idgraph.model.queries import Query
from sinks.http.metadata import MetadataClient
from sinks.keyring.provider import KeyringFile
from tests.installation import PROGRAM, Installation, Shop, retail, until
from tests.servers.faulty_proxy import Answer, Fault, faulty_proxy, passed_on
from tests.servers.kafka import Kafka, running_kafka
from tests.spark.conftest import declare, declare_counters
from tests.support.processes import free_port, listens
from tests.support.stores import dynamodb, elasticsearch
from tests.undisturbed import take

PORTION = {"segment": 60, "amplitude": 40, "orders": 20}
PATIENCE = 240.0
AWAY_SECONDS = 2.0
"""How long a killed server stays away."""
CLOCK = Path(__file__).with_name("clock")


class Mortal(Protocol):
    """A server that can be killed and come back with what it had."""

    def kill(self) -> None: ...

    def restart(self) -> None: ...


class Running(Protocol):
    """A started server."""

    process: subprocess.Popen[bytes]


class Restartable:
    """A server that is started on the same folder and port each time."""

    def __init__(self, start: Callable[[], AbstractContextManager[Any]]) -> None:
        self._start = start
        self._stack = ExitStack()
        self._running: Any = self._stack.enter_context(start())

    def kill(self) -> None:
        """kill -9."""
        self._running.process.kill()
        self._running.process.wait()

    def restart(self) -> None:
        self._stack.close()
        self._running = self._stack.enter_context(self._start())

    def close(self) -> None:
        self._stack.close()


class Scene:
    """All of it. Each portion of events is published to Kafka, and taken by the reference."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.kafka: Kafka = stack.enter_context(running_kafka(folder / "kafka"))
        ports = {"dynamodb": free_port(), "elasticsearch": free_port(), "metadata": free_port()}
        self._metadata_port = ports["metadata"]
        self.dynamodb = Restartable(
            lambda: dynamodb(folder / "dynamodb", persistent=True, port=ports["dynamodb"])
        )
        stack.callback(self.dynamodb.close)
        self.elasticsearch = Restartable(
            lambda: elasticsearch(folder / "elasticsearch", port=ports["elasticsearch"])
        )
        stack.callback(self.elasticsearch.close)
        self.metadata = Restartable(lambda: _metadata_service(folder / "metadata", ports["metadata"]))
        stack.callback(self.metadata.close)
        store, self.store_faults = stack.enter_context(faulty_proxy(f"http://127.0.0.1:{ports['dynamodb']}"))
        index, self.index_faults = stack.enter_context(
            faulty_proxy(f"http://127.0.0.1:{ports['elasticsearch']}")
        )
        self.shop = _shop(folder / "metadata", ports["metadata"])
        self.tables: dict[str, Any] = {
            "store": {
                "kind": "dynamodb",
                "table_prefix": "faults",
                "region": "eu-central-1",
                "endpoint": store,
            },
            "index": {"kind": "elasticsearch", "url": index, "replicas": 0},
            "kafka": {"bootstrap_servers": self.kafka.bootstrap_servers},
        }
        self.installation = Installation(folder / "flow", self.shop, topics="faults-", **self.tables)
        self.kafka.create(*(f"faults-{source}" for source in PORTION))
        self.installation.command("store", "create")
        self.installation.command("index", "create")
        self.clock = folder / "clock"
        self._reference = Installation(folder / "reference", self.shop)
        self._portion = 0
        self.process = self.start()
        stack.callback(self.stop)

    def start(self) -> subprocess.Popen[bytes]:
        """Run the flow, whose clock can be set."""
        self.process = self.installation.start(
            PYTHONPATH=f"{CLOCK}:{CLOCK.parents[2]}", IDGRAPH_TEST_CLOCK=str(self.clock)
        )
        return self.process

    def stop(self) -> None:
        """SIGTERM."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    def publish(self, happens: Callable[[], None] | None = None) -> None:
        """The next portion, to the flow and to the reference. Something may happen when the flow first writes of it."""
        until(lambda: listens(self._metadata_port), PATIENCE, "the metadata service")
        begin = self._portion
        self._portion += 1
        portion = {
            source: retail(source)[begin * events : (begin + 1) * events]
            for source, events in PORTION.items()
        }
        assert all(portion.values())
        # First: what is to happen to the service happens as soon as the flow has them.
        take(self._reference, portion)
        if happens is not None:
            self.store_faults.append(at_a_write(self.store_faults, happens))
        for source, lines in portion.items():
            self.kafka.produce(f"faults-{source}", *(line.strip() for line in lines), partition=begin % 2)

    @property
    def published(self) -> int:
        """Events so far."""
        return self._portion * sum(PORTION.values())

    def is_done(self) -> bool:
        """Whether the flow has taken all that was published; one that ended is started again."""
        if self.process.poll() is not None:
            self.start()
        states = partition_states(load(self.installation.config))
        return len(states) == 2 * len(PORTION) and not any(each.lag or each.lag is None for each in states)

    def settle(self) -> None:
        """Wait for it, and for what waits for the index."""
        until(self.is_done, PATIENCE, "the portion")
        with wiring.opened(load(self.installation.config)) as resources:
            until(lambda: not resources.store.outbox(), PATIENCE, "the outbox")

    def differences(self) -> list[str]:
        """What is not as the reference has it; nothing may be."""
        found = []
        with (
            wiring.opened(load(self.installation.config)) as flow,
            wiring.opened(load(self._reference.config)) as reference,
        ):
            export = _exported(self.installation, flow)
            if export != _exported(self._reference, reference):
                found.append("the export")
            if purchases(export) < 2 * self._portion:
                found.append("counters: none to compare")
            if flow.index.count(Query()) != len(export):
                found.append("the index")
            if list(flow.dead_letters.scan()):
                found.append("dead letters")
        return found


def at_a_write(faults: deque[Fault], happens: Callable[[], None]) -> Fault:
    """A fault of the store's proxy that waits for the first write, which is in the middle of a micro-batch: what it
    read is in its hands, and nothing of it stored."""

    def fault(send: Callable[[bytes], Answer], body: bytes) -> Answer:
        if b'"Statements"' in body:
            happens()
        else:
            faults.appendleft(fault)
        return send(body)

    return fault


def purchases(export: Iterable[bytes]) -> int:
    """How many the profiles have counted together."""
    profiles = [json.loads(line)["attributes"] for line in export]
    return sum(profile.get("spending", {}).get("orders", 0) for profile in profiles)


def killed_for_a_while(server: Mortal) -> Callable[[], None]:
    """Kills it, and has it come back from another thread."""

    def happens() -> None:
        server.kill()
        threading.Thread(target=_come_back, args=[server]).start()

    return happens


def _come_back(server: Mortal) -> None:
    time.sleep(AWAY_SECONDS)
    server.restart()


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """A scene that has taken its first portion."""
    with ExitStack() as stack:
        made = Scene(folder, stack)
        made.publish()
        made.settle()
        yield made


def _exported(installation: Installation, resources: Any) -> list[bytes]:
    reader = wiring.profile_reader(load(installation.config), resources)
    return [canonical.encode(profile.canonical(True)) for profile in reader.scan(reveal=True)]


@contextmanager
def _metadata_service(folder: Path, port: int) -> Iterator[Running]:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "idgraph.toml"
    config.write_text(f'[metadata]\nurl = "http://127.0.0.1:{port}"\n')
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*PROGRAM, "-c", str(config), "serve", "metadata"], stdout=log, stderr=log, cwd=folder
        )
    try:
        until(lambda: listens(port) or process.poll() is not None, PATIENCE, "the metadata service")
        assert process.poll() is None, (folder / "log").read_text()
        yield SimpleNamespace(process=process)
    finally:
        process.terminate()
        process.wait()


def _shop(folder: Path, port: int) -> Shop:
    """The service with the shop's specs and counters, and a keyring."""
    KeyringFile.create(folder / "keyring.json")
    url, token = f"http://127.0.0.1:{port}", (folder / ".idgraph" / "admin.token").read_text().strip()
    with closing(MetadataClient(url, token)) as client:
        declare(client)
        declare_counters(client)
    return Shop(url, token, folder / "keyring.json")


def faults_between(fault: Fault, count: int) -> deque[Fault]:
    """So many of a fault, with requests that pass in between."""
    return deque([each for _ in range(count) for each in (passed_on, fault)])
