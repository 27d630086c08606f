"""Options of a flow's Spark session, with an archive of Spark's classes as the JVM has them when loaded.

The archive saves half of a start's seconds and CPU. The JVM writes one when a run ends that had none
(`-XX:ArchiveClassesAtExit`, JEP 350) and maps it into memory at the next start; it ignores one that does not fit its Java or its
jars. The file holds code and nothing of a run. It is rebuilt for another Java or PySpark, and only the newest few are kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pyspark

from idgraph.model.sources import FlowConfig
from idgraph.model.spark import SparkSettings, is_local

STOP_SECONDS = 20
"""The longest wait for the end of a query that was told to stop."""

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
        # Between the jobs of the stream and those of the projection.
        "spark.scheduler.mode": "FAIR",
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
        # A second signal ends the thread of Java that a resting query's lock belongs to: that query never ends by itself.
        "spark.sql.streaming.stopTimeout": f"{STOP_SECONDS}s",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A commit task starts on the first shuffle blocks while the JVM still prepares the next.
        "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
        # Hadoop sets the modes of what it makes: checkpoint and journal are for their owner only.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # Shuffle blocks are sealed, so they do not become smaller.
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        # Else each block is written twice: to a file for its partition, then to the task's own.
        "spark.shuffle.sort.bypassMergeThreshold": "1",
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


KEPT = 3
"""Archives that stay: each has some 150 MB."""

WRITTEN_SECONDS = 10
"""A file that has not grown for so long is written: the JVM takes a second or two."""

_ABANDONED_SECONDS = 3600

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""The JVM would say on standard output, which is the flow's, that an archive does not fit."""


def archive_options(folder: Path) -> list[str]:
    """Java options that use the archive in `folder`, or have one made when this JVM ends. None where there
    is no place for it: a start without is only slower."""
    java = _java()
    if java is None:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            # Code that is mapped from there is run.
            return []
        archive = folder / f"spark-{_name(java)}.jsa"
        _adopt(archive)
        if archive.exists():
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_SILENT]
        _forget_old(folder)
        return [f"-XX:ArchiveClassesAtExit={_part(archive, os.getpid())}", *_SILENT]
    except OSError:
        return []


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _name(java: Path) -> str:
    jars = Path(pyspark.__file__).parent / "jars"
    of = [java, java.stat().st_mtime_ns, jars, jars.stat().st_mtime_ns, pyspark.__version__]
    return hashlib.sha256("\n".join(map(str, of)).encode()).hexdigest()[:16]


def _part(archive: Path, process: int) -> Path:
    return archive.with_suffix(f".{process}.part")


def _adopt(archive: Path) -> None:
    """Take over what an ended run has written. The JVM writes after Python's end, so nobody waits for it;
    its header comes last, so one that a kill interrupted begins with zeros."""
    for part in archive.parent.glob(f"{archive.stem}.*.part"):
        with suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > WRITTEN_SECONDS:
                with part.open("rb") as written:
                    is_whole = any(written.read(4))
                if is_whole:
                    part.replace(archive)
                else:
                    part.unlink()


def _forget_old(folder: Path) -> None:
    with suppress(FileNotFoundError):
        newest = sorted(folder.glob("spark-*.jsa"), key=lambda archive: archive.stat().st_mtime)
        for archive in newest[: 1 - KEPT]:
            archive.unlink(missing_ok=True)
        for part in folder.glob("spark-*.part"):
            if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                part.unlink()
