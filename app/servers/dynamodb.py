"""DynamoDB Local: Amazon's own DynamoDB for one machine, with its expressions, PartiQL and Streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.jars.maven import Artifact, JarSet, jars
from app.java import require_java
from app.servers.processes import free_port, listens, running
from model.errors import ConfigError, ServerUnavailableError

DYNAMODB_LOCAL = JarSet(
    "DynamoDBLocal-3.1.0", (Artifact("software.amazon.dynamodb", "DynamoDBLocal", "3.1.0"),)
)
_MAIN = "software.amazon.dynamodb.services.local.main.ServerRunner"


@contextmanager
def dynamodb(folder: Path, persistent: bool = False, port: int = 0) -> Iterator[str]:
    """The URL of a DynamoDB on loopback that lives as long as the context; any credentials will do.

    `folder` takes its log, and its data if `persistent`; else these are in memory. Port 0 is any free one.
    Raises ServerUnavailableError with the reason where it cannot be had.
    """
    try:
        java, library = require_java(), jars(DYNAMODB_LOCAL)
    except ConfigError as error:
        raise ServerUnavailableError(str(error)) from None
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # It tells Amazon of its use otherwise.
    command += [f"-Djava.library.path={library}", "-cp", f"{library}/*", _MAIN, "-disableTelemetry"]
    command += ["-port", str(port), "-sharedDb", *(["-dbPath", str(folder)] if persistent else ["-inMemory"])]
    with running("DynamoDB Local", command, folder / "dynamodb.log", lambda: listens(port)):
        yield f"http://127.0.0.1:{port}"
