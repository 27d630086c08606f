"""The Spark session of a flow."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import randbits
from typing import TypeAlias

from pyspark.sql import SparkSession

from idgraph.files import owner_only
from idgraph.model.errors import FlowStoppedError
from idgraph.model.sources import FlowConfig
from idgraph.model.spark import SparkSettings, is_local
from ingestion.spark import local_disk
from ingestion.spark.session_options import is_authenticated, session_options
from ingestion.spark.worker_errors import error_of_spark, is_of_spark

log = logging.getLogger(__name__)

Session: TypeAlias = SparkSession
"""For who imports nothing of Spark."""

_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def start_session(
    flow: FlowConfig,
    spark: SparkSettings,
    scratch: Path,
    log_file: Path,
    archives: Path,
    jars: Sequence[Path] = (),
    seals_rows: bool = True,
) -> SparkSession:
    """A session for one flow. `scratch` holds Spark's own temporary files, `archives` outlives the run,
    `jars` are added to Spark's own. Unless the tasks seal their rows, Spark encrypts what it writes to disk.

    The standard error of the JVM and its workers goes to `log_file`, not between the lines of a progress bar. Raises
    FlowStoppedError with the reason when Spark does not start.
    """
    here = is_local(flow.master)
    os.environ["PYSPARK_PYTHON"] = sys.executable if here else spark.python
    # Workers start with `python -m`, which would look for our packages in the current folder first.
    os.environ["PYTHONSAFEPATH"] = "1"
    if here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Under another locale Java cannot open files whose names are not ASCII, and skips them without a word.
    os.environ["LC_ALL"] = "C.UTF-8"
    # The files of an earlier run that was killed.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (here or is_authenticated(flow, spark)):
        log.warning(
            "Spark's processes trust every client that reaches them, and do not encrypt: docs/cluster.md has the options"
        )
    builder = SparkSession.builder.master(flow.master).appName(f"idgraph-{flow.name}")
    if jars:
        builder = builder.config("spark.jars", ",".join(jar.as_uri() for jar in jars))
    for key, value in session_options(flow, spark, scratch, archives, seals_rows).items():
        builder = builder.config(key, value)
    further = {name: value.get_secret_value() for name, value in spark.options.items()}
    with _standard_error_to(log_file), given_by_file(further, scratch / "further.properties"):
        try:
            session = builder.getOrCreate()
            local_disk.install(session)
        except Exception as error:
            if not is_of_spark(error):
                raise
            reason = str(error_of_spark(error, spark.without_secrets)).removeprefix(
                "Spark stopped the flow: "
            )
            raise FlowStoppedError(f"Spark did not start: {reason}; more in {log_file}") from None
        session.sparkContext.setLogLevel("ERROR")
    _report_no_tracebacks(session)
    # Java may collect a callback of an earlier process late, by its id: ours are no earlier one's.
    session.sparkContext._gateway.gateway_property.pool.next_id = randbits(62)
    return session


def _report_no_tracebacks(session: SparkSession) -> None:
    """A lost JVM is reported in one line by the next call that fails, without tracebacks of py4j."""

    def passed_over(request: object, address: object) -> None:
        log.debug("the JVM has left: %s %s", request, address)

    session.sparkContext._accumulatorServer.handle_error = passed_over


def was_java_asked_to_end(session: SparkSession, seconds: float) -> bool:
    """Whether the Java process of a session ends within some seconds by a signal that asks it to, not by one that kills it
    and not by itself. A process that the session did not start does not end."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    # Java's exit code names a handled signal as a shell does.
    return code in {exit_code for asked in _ASKING for exit_code in (-asked, 128 + asked)}


@contextmanager
def unless_gone() -> Iterator[None]:
    """Wraps calls that end something of Spark's: with a killed JVM there is nothing to end, and an earlier error has
    reported it."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        log.debug("Spark is gone already: %s", type(error).__name__)


def stop_session(session: SparkSession) -> None:
    """Stop it, if it is still there."""
    with unless_gone():
        session.stop()


@contextmanager
def session_beside(
    flow: FlowConfig, spark: SparkSettings, folder: Path, archives: Path
) -> Iterator[SparkSession]:
    """A session for work over all that a flow stored, while the flow may run. `folder`: of this work alone, which names it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    named = flow.model_copy(update={"name": folder.name})
    places = folder / "spark", folder / "spark.log", archives
    with owner_only():
        session = start_session(named, spark, *places, seals_rows=False)
        try:
            yield session
        finally:
            stop_session(session)


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


_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@contextmanager
def given_by_file(options: Mapping[str, str], file: Path) -> Iterator[None]:
    """Within this context a JVM that PySpark starts has these options, unless its command line says otherwise. They go by a
    file, since every user of a machine can read command lines. It is the owner's alone and removed afterwards: the JVM
    reads it once, before it answers."""
    earlier = os.environ.get(_ARGUMENTS)
    with os.fdopen(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as lines:
        lines.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in options.items())
    # A machine's spark-defaults.conf holds as it would without our file.
    ours = f"--properties-file {shlex.quote(str(file.absolute()))} --load-spark-defaults"
    os.environ[_ARGUMENTS] = f"{ours} {earlier or 'pyspark-shell'}"
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = earlier
        file.unlink(missing_ok=True)


def _escaped(text: str) -> str:
    # Java's properties give a meaning to separators, backslashes and blanks, and are read in one of two encodings.
    units = text.encode("utf-16-be")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))
