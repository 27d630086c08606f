"""The Spark session of a flow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ingestion.configuration import FlowConfig

# Spark's default checkpoint files go through Hadoop's FileContext, which renames by copy on local disks;
# this one halves the fixed cost of a micro-batch.
_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def start_session(flow: FlowConfig, scratch: Path) -> SparkSession:
    """A session for one flow. `scratch` holds Spark's own temporary files."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    builder = SparkSession.builder.master(flow.master).appName(f"idgraph-{flow.name}")
    for key, value in _options(flow, scratch).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _options(flow: FlowConfig, scratch: Path) -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.driver.memory": flow.driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -XX:+UseParallelGC",
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
        # What Spark spills or shuffles holds personal data that policy leaves readable.
        "spark.io.encryption.enabled": "true",
    }
