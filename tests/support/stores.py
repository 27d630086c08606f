"""DynamoDB Local and Elasticsearch as processes of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from idgraph.app.java import Artifact, JarSet
from tests.support.processes import free_port, java_and_jars, listening

_HERE = Path(__file__).parent
DYNAMODB_LOCAL = JarSet(
    "DynamoDBLocal-3.1.0", (Artifact("software.amazon.dynamodb", "DynamoDBLocal", "3.1.0"),), _HERE
)
_MAIN = "software.amazon.dynamodb.services.local.main.ServerRunner"


class RunningDynamo(NamedTuple):
    """Where it answers, and its process."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def dynamodb(folder: Path, persistent: bool = False, port: int = 0) -> Iterator[RunningDynamo]:
    """A DynamoDB on loopback that lives as long as the context; any credentials will do.

    `folder` takes its log, and its data if `persistent`; else these are in memory. Port 0 is any free one.
    Raises ServerUnavailableError with the reason where it cannot be had.
    """
    java, (library,) = java_and_jars(DYNAMODB_LOCAL)
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # It reports Amazon of its use otherwise.
    command += [f"-Djava.library.path={library}", "-cp", f"{library}/*", _MAIN, "-disableTelemetry"]
    command += ["-port", str(port), "-sharedDb", *(["-dbPath", str(folder)] if persistent else ["-inMemory"])]
    with listening("DynamoDB Local", command, folder / "dynamodb.log", port) as it:
        yield RunningDynamo(f"http://127.0.0.1:{port}", it)


_VERSION = "8.19.21"
NODE = JarSet(f"elasticsearch-{_VERSION}", (Artifact("org.elasticsearch", "elasticsearch", _VERSION),), _HERE)
# Apart from the others: a module that is on the class path as well is refused.
TRANSPORT = JarSet(
    f"transport-netty4-{_VERSION}",
    (Artifact("org.elasticsearch.plugin", "transport-netty4", _VERSION),),
    _HERE,
)
_LAUNCHER = _HERE / "ElasticsearchNode.java"


class RunningNode(NamedTuple):
    """A node, where it answers, and its process."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def elasticsearch(folder: Path, port: int = 0) -> Iterator[RunningNode]:
    """An Elasticsearch on loopback that lives as long as the context; it asks nobody who they are.

    `folder` takes its data and its log: with the same folder it continues from there. Port 0 is any free one.
    Raises ServerUnavailableError with the reason where it cannot be had.
    """
    java, (library, transport) = java_and_jars(NODE, TRANSPORT)
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = [java, "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # Run from its source: nothing of Elasticsearch, whose licences forbid it, is in this package.
    command += ["-cp", f"{library}/*", str(_LAUNCHER), str(folder), str(port), str(transport)]
    with listening("Elasticsearch", command, folder / "elasticsearch.log", port) as it:
        yield RunningNode(f"http://127.0.0.1:{port}", it)
