"""The Spark session of a flow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from ingestion.class_archive import archive_options
from ingestion.configuration import FlowConfig
from model.errors import FlowStoppedError

# Spark's default checkpoint files go through Hadoop's FileContext, which renames by copy on local disks;
# this one halves the fixed cost of a micro-batch.
_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

# What the JVM does here is short and small: no time for the best compiler, nor threads for its collector.
_QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def start_session(
    flow: FlowConfig, scratch: Path, log_file: Path, archives: Path, jars: Sequence[Path] = ()
) -> SparkSession:
    """A session for one flow. `scratch` holds Spark's own temporary files, `archives` outlives the run,
    `jars` are added to Spark's own.

    What the JVM and its workers write to standard error goes to `log_file`, not between the lines of a
    progress bar. Raises FlowStoppedError with the end of that file when Spark does not start.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers start with `python -m`, which would look for our packages in the current folder first.
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Under another locale Java cannot open files whose names are not ASCII, and skips them without a word.
    os.environ["LC_ALL"] = "C.UTF-8"
    # What an earlier run left when it was killed.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    builder = SparkSession.builder.master(flow.master).appName(f"idgraph-{flow.name}")
    if jars:
        builder = builder.config("spark.jars", ",".join(jar.as_uri() for jar in jars))
    for key, value in _options(flow, scratch, archives).items():
        builder = builder.config(key, value)
    with _standard_error_to(log_file):
        try:
            session = builder.getOrCreate()
        except Exception as error:
            last = log_file.read_text(errors="replace").strip().splitlines()[-5:]
            raise FlowStoppedError(
                f"Spark did not start ({type(error).__name__}); the end of {log_file}:\n" + "\n".join(last)
            ) from None
        session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _standard_error_to(file: Path) -> Iterator[None]:
    # The JVM inherits the descriptor that is in place when it starts, and keeps it.
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def _options(flow: FlowConfig, scratch: Path, archives: Path) -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2.properties")
    java = [f"-Dlog4j2.configurationFile={log4j.as_uri()}", *_QUICK_JAVA, *archive_options(archives)]
    return {
        "spark.driver.memory": flow.driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        # Adaptive execution would run each side of the shuffle as a job of its own.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(flow.partitions),
        # Small files share a task until it has `split_bytes`.
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.files.openCostInBytes": "4096",
        "spark.sql.files.maxPartitionBytes": str(flow.split_bytes),
        # List directories in the driver: a Spark job to list more than 32 of them costs more than it gains.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_MANAGER,
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A commit task starts on the first parcels while the JVM still prepares the next.
        "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
        # Hadoop sets modes itself and asks no process: checkpoint and journal are for their owner only.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # What Spark spills or shuffles holds personal data that policy leaves readable.
        "spark.io.encryption.enabled": "true",
    }
