"""Apache Kafka: one node that is broker and controller (KRaft), as production runs it, on loopback."""

from __future__ import annotations

import re
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from idgraph.app.java import Artifact, JarSet
from tests.support.processes import ServerUnavailableError, free_port, java_and_jars, listening

KAFKA = JarSet(
    "kafka-4.1.0",
    (
        Artifact("org.apache.kafka", "kafka_2.13", "4.1.0"),
        Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    Path(__file__).parent,
)
LOOPBACK = "127.0.0.1"
_MAIN = "kafka.Kafka"
_STORAGE_TOOL = "kafka.tools.StorageTool"
_PORTS = re.compile(r"^listeners=PLAINTEXT://[\d.]+:(\d+),CONTROLLER://127\.0\.0\.1:(\d+)$", re.MULTILINE)
FORMAT_SECONDS = 120


class Broker(NamedTuple):
    """A running broker: `HOST:PORT`, and its process, for who wants to see it killed."""

    bootstrap_servers: str
    process: subprocess.Popen[bytes]


@contextmanager
def kafka(folder: Path, port: int = 0, host: str = "") -> Iterator[Broker]:
    """A broker on loopback, or for those who reach this machine as `host`, that lives as long as the context. Started again with the same folder, it has what it had,
    however it ended. Port 0 is any free one, or the one that it had.

    `folder` takes its log and its data. Raises ServerUnavailableError with the reason where it cannot be had.
    """
    java, (library,) = java_and_jars(KAFKA)
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{library}/*"]
    had, controller = _ports(properties)
    port = port or had or free_port()
    # The storage remembers the controller by its port.
    properties.write_text(
        _properties(folder / "data", port, controller or free_port(), host), encoding="utf-8"
    )
    if not (folder / "data" / "meta.properties").exists():
        _format([*command, _STORAGE_TOOL], properties)
    with listening("Kafka", [*command, _MAIN, str(properties)], folder / "kafka.log", port) as it:
        yield Broker(f"{host or LOOPBACK}:{port}", it)


def _ports(properties: Path) -> tuple[int, int]:
    """Those of an earlier start, of the broker and of its controller; zeros where there was none."""
    found = _PORTS.search(properties.read_text(encoding="utf-8")) if properties.exists() else None
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _cluster_id() -> str:
    while True:
        spelled = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # The tool would take it for an option.
        if not spelled.startswith("-"):
            return spelled


def _format(tool: list[str], properties: Path) -> None:
    cluster = _cluster_id()
    done = subprocess.run(
        [*tool, "format", "--standalone", "-t", cluster, "-c", str(properties)],
        capture_output=True,
        text=True,
        check=False,
        timeout=FORMAT_SECONDS,
    )
    if done.returncode:
        said = " / ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise ServerUnavailableError(f"Kafka's storage could not be formatted: {said or 'no reason given'}")


def _properties(data: Path, port: int, controller_port: int, host: str) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://{'0.0.0.0' if host else LOOPBACK}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host or LOOPBACK}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        # There is no other node to copy to.
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A misspelt topic is reported, not made.
        "auto.create.topics.enable": "false",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())
