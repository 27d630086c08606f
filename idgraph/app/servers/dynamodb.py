"""DynamoDB Local: Amazon's own DynamoDB for one machine, with its expressions, PartiQL and Streams."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from idgraph.app.jars.maven import Artifact, JarSet
from idgraph.app.servers.processes import free_port, listening
from idgraph.app.servers.requirements import java_and_jars

DYNAMODB_LOCAL = JarSet(
    "DynamoDBLocal-3.1.0", (Artifact("software.amazon.dynamodb", "DynamoDBLocal", "3.1.0"),)
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
