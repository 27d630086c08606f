"""Headers of Kafka's records as Spark hands them on, read as they were published."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.own_session import reported_by

pytestmark = [pytest.mark.spark, pytest.mark.long]

READ = """
from idgraph.model.kafka import KafkaSource
from ingestion.sources.kafka.records import COLUMNS, COMPUTED, KafkaRecords

HEADERS = (
    "array(struct('h' AS key, X'FE00' AS value), struct('n' AS key, CAST(NULL AS BINARY) AS value), "
    "struct('ä\\"' AS key, CAST('' AS BINARY) AS value), struct('h' AS key, X'41' AS value))"
)
records = " UNION ALL ".join(
    f"SELECT 'shop' AS topic, 0 AS partition, {number}L AS offset, timestamp_millis({number}) AS timestamp, "
    f"X'FF' AS key, X'7B7D' AS value, {headers} AS headers"
    for number, headers in enumerate((HEADERS, "slice(" + HEADERS + ", 1, 0)", "CAST(NULL AS array<struct<key:string,value:binary>>)"))
)
rows = session.sql(records).selectExpr(*(f"{COMPUTED.get(name, name)} AS {name}" for name in COLUMNS))
framed = []
import ingestion.sources.kafka.records as module
kept = module.frame
module.frame = lambda key, headers, timestamp, value: framed.append((headers, timestamp)) or kept(key, headers, timestamp, value)
source = KafkaSource(kind="kafka", name="shop", topics=("shop",), type={"const": "t"})
read = list(KafkaRecords({"shop": source}, 1000, [tuple(row) for row in rows.orderBy("offset").collect()]).records())
reported["headers"] = [[[name, None if value is None else value.hex()] for name, value in headers] for headers, _ in framed]
reported["timestamps"] = [timestamp for _, timestamp in framed]
"""


def test_headers_are_read_as_they_were_published(tmp_path: Path) -> None:
    reported = reported_by(READ, tmp_path)
    published = [["h", "fe00"], ["n", None], ['ä"', ""], ["h", "41"]]
    assert reported["headers"] == [published, [], []]
    assert reported["timestamps"] == [0, 1, 2]
