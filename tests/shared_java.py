"""A Java process of Spark's that the flows of several tests use in turn: to start one is most of what a short run costs.

Each flow is still a process of its own with a Spark context and workers of its own. Flows that are killed, or whose Java
process is what is tested, start their own.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from idgraph.app.java import class_archives
from idgraph.files import owner_only
from idgraph.model.sources import FlowConfig
from idgraph.model.spark import SparkSettings
from ingestion.spark.session_options import session_options

ROOT = Path(__file__).resolve().parents[1]
DRIVER_MEMORY = "512m"


class SharedJava:
    """The process. It ends with this one."""

    def __init__(self, jars: Sequence[Path]) -> None:
        # As the flow's own process would start it, but from no one's defaults. PySpark is imported where Spark is wanted.
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        self._folder = tempfile.TemporaryDirectory(prefix="shared-java-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        flow = FlowConfig(driver_memory=DRIVER_MEMORY)
        options = session_options(flow, SparkSettings(), folder, class_archives())
        if jars:
            options["spark.jars"] = ",".join(jar.as_uri() for jar in jars)
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        environment = {
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder}",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(folder),
        }
        with (
            (folder / "java.log").open("ab") as said,
            mock.patch.dict(os.environ, environment),
            owner_only(),
        ):
            self._gateway: Any = launch_gateway(conf, {"stdout": said, "stderr": said})

        atexit.register(self.end)

    def environment(self) -> dict[str, str]:
        """By which PySpark finds it."""
        parameters = self._gateway.java_parameters
        return {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }

    def forget(self) -> None:
        """What it keeps beyond a flow: the next one asks for a file system of its own, which knows no file yet."""
        self._gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()

    def end(self) -> None:
        """It writes an archive of its classes then, where there was none."""
        atexit.unregister(self.end)
        process = self._gateway.proc
        self._gateway.shutdown()
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._folder.cleanup()


_in_use = threading.Lock()
_started: dict[tuple[Path, ...], SharedJava] = {}
"""By the jars that it has beside Spark's own; one at a time."""


@contextmanager
def shared_java(*jars: Path) -> Iterator[dict[str, str] | None]:
    """The environment of a flow that ends by itself; None where another flow is using the process."""
    if not _in_use.acquire(blocking=False):
        yield None
        return
    try:
        if jars not in _started:
            _end()
            _started[jars] = SharedJava(jars)
        try:
            yield _started[jars].environment()
            _started[jars].forget()
        except BaseException:
            # Nobody knows what it still does.
            _end()
            raise
    finally:
        _in_use.release()


def _end() -> None:
    while _started:
        _started.popitem()[1].end()
