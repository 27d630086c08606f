"""Errors of ours from the text that Spark hands on: the traceback of a worker, or its own message."""

from __future__ import annotations

import re
from collections.abc import Callable

from idgraph.model import errors
from idgraph.model.errors import (
    FlowStoppedError,
    IdgraphError,
    JavaLostError,
    SparkStoppedError,
    UnreadableRecordError,
    WorkerInterruptedError,
    WorkerLostError,
)

_OF_WORKERS = (
    errors.ConfigError,
    errors.ConflictError,
    errors.DecryptionError,
    errors.KeyProviderError,
    errors.KeyServiceError,
    errors.PayloadSchemaError,
    errors.ProfileIndexError,
    errors.SchemaRegistryError,
    errors.SourceUnavailableError,
    errors.StoreError,
    errors.UnstorableError,
)
"""Errors that keep their type, and so the exit code of `run`; others become FlowStoppedError."""


_MAY_PASS = (
    errors.DecryptionError,
    errors.KeyServiceError,
    errors.SchemaRegistryError,
    errors.SourceUnavailableError,
    errors.StoreError,
    WorkerLostError,
)

_OF_OURS = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+): (.*)$", re.MULTILINE)
_LOST = re.compile(
    r"Python worker (?:exited unexpectedly|failed to connect back)|ExecutorLostFailure"
    # The worker, or the process that begins workers, died while it was written to or asked for another one.
    r"|java\.io\.IOException: Broken pipe|EOFException occurred while reading the port number"
)
_INTERRUPTED = re.compile(r"^KeyboardInterrupt$", re.MULTILINE)
_GONE = re.compile(r"KAFKA_DATA_LOSS|KafkaIllegalStateException")
"""The connector's words for offsets that Kafka dropped before they were read."""
_ODD_TIME = re.compile(r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value")
"""The connector's words for a timestamp out of range, for instance nanoseconds for milliseconds."""
_REASON = re.compile(r"^Reason:\s*(\S[^\n]{0,500})", re.MULTILINE)
_NO_BROKER = re.compile(r"org\.apache\.kafka\.common\.errors\.TimeoutException: Tim")
_PREFACE = "An error occurred while calling"
"""The beginning of py4j's messages."""
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def may_pass_again(error: IdgraphError) -> bool:
    """Whether a retry of the micro-batch may succeed: after a conflict, while a store, a source or a service of keys,
    schemas or decryption was away, or when a worker was killed."""
    if isinstance(error, (errors.UnstorableError, errors.DamagedStateError)):
        return False
    return isinstance(error, _MAY_PASS)


def is_of_spark(error: Exception) -> bool:
    """Whether Spark raised it. py4j has errors of its own for a killed worker and for a damaged checkpoint, and a lost
    JVM is an error of sockets."""
    return isinstance(error, ConnectionError) or type(error).__module__.startswith(("pyspark.", "py4j."))


def error_of_spark(error: Exception, without_secrets: Callable[[str], str]) -> IdgraphError:
    """The error of ours for an error of Spark."""
    text = _said(error)
    if text is None:
        return JavaLostError(
            "Spark's Java process is gone: it was killed, for want of memory or by a signal to the whole group of processes; "
            "run again"
        )
    return error_of_worker(without_secrets(text))


def _said(error: Exception) -> str | None:
    """Spark's message; None if the JVM is gone: py4j asks it for the message even of earlier errors."""
    try:
        text = str(error)
    except Exception as later:
        if not is_of_spark(later):
            raise
        return None
    return None if isinstance(error, ConnectionError) or _is_of_no_jvm(error, text.strip()) else text


def _is_of_no_jvm(error: Exception, text: str) -> bool:
    name = type(error).__name__
    if name != "Py4JError":
        return name == "Py4JNetworkError"
    # A living JVM always adds a message of Java's, and knows the objects of its session.
    is_mute = text.startswith(_PREFACE) and "\n" not in text
    return is_mute or text.endswith("does not exist in the JVM")


def error_of_worker(text: str) -> IdgraphError:
    """The error of ours that a message of Spark contains, else one that quotes its first line."""
    found = _OF_OURS.search(text)
    if found is None:
        if _INTERRUPTED.search(text):
            return WorkerInterruptedError("a Python worker was interrupted under its task; run again")
        if _LOST.search(text):
            return WorkerLostError(
                "a Python worker or an executor died under its task, most often for want of memory; run again"
            )
        return stopped_by_spark(text)
    kind = getattr(errors, found[1], FlowStoppedError)
    return kind(found[2]) if kind in _OF_WORKERS else FlowStoppedError(found[2])


def stopped_by_spark(text: str) -> FlowStoppedError:
    """Spark's own message, cut to the line with the cause: plans and frames follow it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(_PREFACE):
        # The innermost cause says what was wrong.
        lines = _CAUSE.findall(text)[-1:] or [line.removeprefix(": ") for line in lines[1:]]
    message = (lines or ["it did not say why"])[0][:500]
    if _NO_BROKER.search(text):
        return FlowStoppedError(
            "Kafka does not answer: no broker of [kafka] bootstrap_servers; run again when it is back"
        )
    if odd := _ODD_TIME.search(text):
        return UnreadableRecordError(
            f"Spark's connector cannot read a record of Kafka, whose timestamp is out of all range: topic {odd[1]}, "
            f"partition {odd[2]}, offset {odd[3]} (docs/kafka.md)"
        )
    if _GONE.search(text):
        reason = _REASON.search(text)
        message = reason[1].strip() if reason else message
        return FlowStoppedError(
            f"records in Kafka are gone that were not read yet (docs/kafka.md): {message}"
        )
    return SparkStoppedError(f"Spark stopped the flow: {message}")
