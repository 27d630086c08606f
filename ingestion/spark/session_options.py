"""Options of a flow's Spark session."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from idgraph.model.sources import FlowConfig
from idgraph.model.spark import SparkSettings, is_local
from ingestion.spark.class_archive import archive_options

CODE = "idgraph"
"""Below an executor's working folder: what was in the archive."""

# Spark's default checkpoint files go through Hadoop's FileContext, which renames by copy on local disks;
# this one halves the fixed cost of a micro-batch.
_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

_LONGEST_SOCKETS_FOLDER = 55
"""In bytes: a socket's path has at most 103, of which its name takes some 45."""

# The JVM's work here is short and small: no time for the best compiler, nor threads for its collector.
_QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def session_options(
    flow: FlowConfig, spark: SparkSettings, scratch: Path, archives: Path, seals_rows: bool = True
) -> dict[str, str]:
    """By name, without the configuration's further ones, which may replace none of these. `scratch` holds the driver's
    temporary files, `archives` those of Spark's classes. `seals_rows`: the tasks seal what Spark writes to disk."""
    log4j = Path(__file__).with_name("log4j2.properties")
    here = is_local(flow.master)
    # To executors it encrypts, code too: without the best compiler at a tenth of the speed.
    quick = _QUICK_JAVA if here else ()
    java = [f"-Dlog4j2.configurationFile={log4j.as_uri()}", *quick, *archive_options(archives)]
    return {
        **(_of_one_machine(scratch) if here else _of_cluster(flow, spark)),
        "spark.driver.memory": flow.driver_memory,
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
        # A commit task starts on the first shuffle blocks while the JVM still prepares the next.
        "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
        # Hadoop sets the modes of what it makes: checkpoint and journal are for their owner only.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # Shuffle blocks are sealed, so they do not become smaller.
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        # On a cluster the reports as well. Here it would be most of the JVM's work, which has no better compiler.
        "spark.io.encryption.enabled": str(not (here and seals_rows)).lower(),
    }


def _of_one_machine(scratch: Path) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Other users of this machine reach its ports. Spark makes the secret itself.
        "spark.authenticate": "true",
        # With TCP between the JVM and its workers each side waits for the other's acknowledgement: 40 ms per
        # micro-batch.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": _for_sockets(scratch),
    }


def _for_sockets(scratch: Path) -> str:
    """A folder that is short enough. In each only the owner of a socket's file, who alone may write to it, can connect."""
    folders = (str(scratch), tempfile.gettempdir(), "/tmp")  # noqa: S108 - as said
    return next(each for each in folders if len(os.fsencode(each)) <= _LONGEST_SOCKETS_FOLDER)


def is_authenticated(flow: FlowConfig, spark: SparkSettings) -> bool:
    """Whether Spark's processes know a common secret: on Kubernetes it makes one itself."""
    authenticate = spark.options.get("spark.authenticate")
    return authenticate.get_secret_value() == "true" if authenticate else flow.master.startswith("k8s:")


def _of_cluster(flow: FlowConfig, spark: SparkSettings) -> dict[str, str]:
    authenticated = str(is_authenticated(flow, spark)).lower()
    options = {
        "spark.authenticate": authenticated,
        # The key of shuffle blocks crosses the network, and so do the blocks.
        "spark.network.crypto.enabled": authenticated,
        # Workers get these variables; `start_session` sets them for itself.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.executorEnv.LC_ALL": "C.UTF-8",
    }
    if spark.driver_host is not None:
        options["spark.driver.host"] = spark.driver_host
    if spark.archive is not None:
        # Unpacked into the working folder, which Python workers start in.
        options["spark.archives"] = f"{spark.archive.as_uri()}#{CODE}"
        options["spark.executorEnv.PYTHONPATH"] = CODE
    return options
