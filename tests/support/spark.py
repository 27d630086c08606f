"""A standalone Spark cluster on loopback, out of the PySpark package: a master, and workers of one core each."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import ServerUnavailableError, free_port, java_and_jars, listening, running

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_REGISTERED = b"Successfully registered with master"


class SparkCluster(NamedTuple):
    """Its master's URL, the secret that whoever connects must know, and its workers, which start executors as their
    child processes."""

    url: str
    secret: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, memory: str = "1g") -> Iterator[SparkCluster]:
    """A cluster that lives as long as the context. `memory` is a worker's.

    `folder` takes logs and what executors write. Raises ServerUnavailableError where it cannot be had.
    """
    java_and_jars()
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerUnavailableError("PySpark is not installed")
    home = Path(spec.origin).parent
    program = [str(home / "bin" / "spark-class")]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        # Executors would find idgraph by it, which are to have it from its archive.
        "PYTHONPATH": "",
    }
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    secret = secrets.token_hex(32)
    properties = folder / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text(
        f"spark.authenticate=true\nspark.authenticate.secret={secret}\nspark.network.crypto.enabled=true\n"
    )
    at = ["--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(properties)]
    with ExitStack() as stack:
        command = [*program, _MASTER, *at, "--port", str(port)]
        stack.enter_context(listening("Spark's master", command, folder / "master.log", port, environment))
        started = []
        for number in range(workers):
            log, work = folder / f"worker-{number}.log", folder / f"worker-{number}"
            command = [*program, _WORKER, *at, "--cores", "1", "--memory", memory, "-d", str(work), url]
            log.unlink(missing_ok=True)
            started.append(
                stack.enter_context(
                    running(f"Spark's worker {number}", command, log, partial(_is_in, log), environment)
                )
            )
        yield SparkCluster(url, secret, started)


def _is_in(log: Path) -> bool:
    return log.exists() and _REGISTERED in log.read_bytes()
