"""What a failed worker said, as the error that it raised."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from idgraph.model.errors import (
    ConfigError,
    FlowStoppedError,
    IdgraphError,
    JavaLostError,
    KeyProviderError,
    SourceUnavailableError,
    SparkStoppedError,
    StoreError,
    WorkerInterruptedError,
    WorkerLostError,
)
from ingestion.spark.worker_errors import (
    error_of_spark,
    error_of_worker,
    is_of_spark,
    may_pass_again,
    stopped_by_spark,
)

TRACEBACK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
Traceback (most recent call last):
  File "worker.py", line 3, in main
    process()
idgraph.model.errors.{error}

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (
            "StoreError: profiles.db: the disk is full (SQLITE_FULL)",
            StoreError,
            "profiles.db: the disk is full (SQLITE_FULL)",
        ),
        (
            "SourceUnavailableError: source web: file:web/a.jsonl#1: Input/output error",
            SourceUnavailableError,
            "source web: file:web/a.jsonl#1: Input/output error",
        ),
        ("KeyProviderError: the keyring: gone", KeyProviderError, "the keyring: gone"),
        ("ConfigError: no source holds the file x", ConfigError, "no source holds the file x"),
        # What is no failure of a part stops the flow, whatever its name.
        ("SpecError: /0: wrong", FlowStoppedError, "/0: wrong"),
        ("NoSuchError: odd", FlowStoppedError, "odd"),
        ("re: odd", FlowStoppedError, "odd"),
    ],
)
def test_an_error_of_ours_comes_through(said: str, kind: type[IdgraphError], message: str) -> None:
    error = error_of_worker(TRACEBACK.format(error=said))
    assert (type(error), str(error)) == (kind, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n  [CANNOT_X] no space  \n== Plan ==\n", "Spark stopped the flow: [CANNOT_X] no space"),
        ("x" * 2000, "Spark stopped the flow: " + "x" * 500),
        ("", "Spark stopped the flow: it did not say why"),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: java.util.concurrent.ExecutionException: "
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
            "Kafka does not answer: no broker of [kafka] bootstrap_servers; run again when it is back",
        ),
    ],
)
def test_of_what_spark_says_the_first_line_is_enough(text: str, message: str) -> None:
    for error in (error_of_worker(text), stopped_by_spark(text)):
        kind = SparkStoppedError if message.startswith("Spark stopped") else FlowStoppedError
        assert (type(error), str(error)) == (kind, message)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (TRACEBACK.format(error="StoreError: profiles.db: the disk is full"), True),
        (TRACEBACK.format(error="ConflictError: 1 fragment(s) kept changing"), True),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).", True),
        ("Job aborted.\nCaused by: java.io.IOException: Broken pipe", True),
        ("EOFException occurred while reading the port number from pyspark.daemon's stdout.", True),
        (TRACEBACK.format(error="UnstorableError: text that is not valid Unicode"), False),
        (TRACEBACK.format(error="KeyProviderError: the keyring: gone"), False),
        (TRACEBACK.format(error="FlowStoppedError: a stage failed with TypeError"), False),
        ("Job aborted: no space", False),
    ],
)
def test_only_what_may_pass_is_given_again(text: str, passes: bool) -> None:
    assert may_pass_again(error_of_worker(text)) is passes


def test_a_worker_that_died_is_reported_as_such() -> None:
    error = error_of_worker("SparkException: Python worker exited unexpectedly (crashed). Consider ...")
    assert type(error) is WorkerLostError
    assert "died under its task" in str(error)


def test_a_worker_that_was_interrupted_is_reported_as_such() -> None:
    text = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 3412, in main\n    process()\nKeyboardInterrupt\n\n\tat org.apache.spark'
    )
    error = error_of_worker(text)
    assert type(error) is WorkerInterruptedError
    assert may_pass_again(error)


def test_records_of_kafka_that_are_gone_are_reported_with_their_place() -> None:
    text = """An error occurred while calling o133.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark
Caused by: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost; set the source
option failOnDataLoss to false.
Reason: Could not read records in offset [10, 20) for topic partition shop-0
Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: offset=10 is out of range for partition shop-0
\tat org.apache.kafka
"""
    for read in (stopped_by_spark, error_of_worker):
        reported = str(read(text))
        assert reported.startswith("records in Kafka are gone that were not read yet (docs/kafka.md): ")
        assert reported.endswith(": Could not read records in offset [10, 20) for topic partition shop-0")
        assert "failOnDataLoss" not in reported, "which would pass it over"
    coded = "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may have been lost"
    assert str(stopped_by_spark(coded)).startswith("records in Kafka are gone")


def test_what_py4j_says_before_it_is_left_out() -> None:
    text = "An error occurred while calling o133.getResult.\n: java.lang.Error: no space left\n\tat java.base"
    assert str(stopped_by_spark(text)) == "Spark stopped the flow: java.lang.Error: no space left"
    caused = text + "\nCaused by: a.B: one\n\tat x\nCaused by: a.C: two of shop-0\n\tat y\n"
    assert str(stopped_by_spark(caused)) == "Spark stopped the flow: a.C: two of shop-0"


def test_a_record_that_the_connector_cannot_read_is_no_lost_one_and_reported_with_its_place() -> None:
    text = """An error occurred while calling o133.getResult.
: org.apache.spark.SparkException: Job aborted
Caused by: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Record at topic orders partition 0 offset 4 has
timestamp value 1764000000000000000 that overflows when converting to microseconds
Caused by: java.lang.ArithmeticException: long overflow
""".replace("has\n", "has ")
    for read in (stopped_by_spark, error_of_worker):
        reported = str(read(text))
        assert "topic orders, partition 0, offset 4" in reported
        assert "gone" not in reported


class WordlessError(Py4JError):  # type: ignore[misc]
    """As py4j's error of what Java raised, which asks Java for its words."""

    def __init__(self, later: Exception) -> None:
        super().__init__()
        self._later = later

    def __str__(self) -> str:
        raise self._later


WordlessError.__module__ = Py4JError.__module__


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (
            WordlessError(Py4JNetworkError("Error while sending or receiving")),
            "Spark's Java process is gone: ",
        ),
        (WordlessError(ConnectionRefusedError(111, "refused")), "Spark's Java process is gone: "),
        (ConnectionRefusedError(111, "refused"), "Spark's Java process is gone: "),
        (ConnectionResetError(), "Spark's Java process is gone: "),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's Java process is gone: "),
        (Py4JError("An error occurred while calling o33.collect"), "Spark's Java process is gone: "),
        (
            Py4JError("a.b.PythonRDD.setupBroadcast does not exist in the JVM"),
            "Spark's Java process is gone: ",
        ),
        (Py4JError("no secret"), "Spark stopped the flow: no word"),
    ],
)
def test_a_jvm_that_is_gone_is_reported_as_such(raised: Exception, message: str) -> None:
    assert is_of_spark(raised)
    reported = error_of_spark(raised, lambda text: text.replace("secret", "word"))
    assert type(reported) is (JavaLostError if "is gone" in message else SparkStoppedError)
    assert str(reported).startswith(message)
