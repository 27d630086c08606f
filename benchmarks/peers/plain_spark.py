"""The program that a competent user of PySpark would write in an afternoon: Structured Streaming over the same files,
mapping by Spark SQL expressions, `foreachBatch`, and `INSERT ... ON CONFLICT DO UPDATE` into SQLite by latest event
time.

python -m benchmarks.peers.plain_spark INBOX FOLDER --table rows|documents --writer driver|partitions
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

Row = tuple[Any, ...]

_DEVICE = "device struct<advertisingId string, manufacturer string, model string, version string>"
_PROPERTIES = (
    "struct<query string, resultCount string, productId string, name string, category string, price string, "
    "quantity string, cartId string, cartTotal string, cartQuantity string>"
)
_TRAITS = "struct<name string, email string, age string, gender string, persona string, username string>"
SCHEMAS = {
    "segment": "timestamp timestamp, userId string, anonymousId string, messageId string, platform string, "
    f"event string, context struct<{_DEVICE}>, traits {_TRAITS}, properties {_PROPERTIES}",
    "amplitude": "time long, user_id string, device_id string, insert_id string, adid string, idfa string, "
    "device_model string, device_manufacturer string, os_version string, platform string, event_type string, "
    f"user_properties {_TRAITS}, event_properties {_PROPERTIES}",
    "orders": "order_id string, created_at timestamp, customer struct<email string, name struct<first string, "
    "last string>>, shipping struct<line1 string, city string, region string, postal_code string, country "
    "string>, cart struct<id string, total string, items string>, guest string",
}
_OF_EVENT = {
    "Search": {"query": "query", "resultCount": "resultCount"},
    "View": {"productId": "productId", "product": "name", "category": "category", "price": "price"},
    "AddToCart": {
        **{"productId": "productId", "product": "name", "category": "category", "price": "price"},
        **{"quantity": "quantity", "cartId": "cartId"},
    },
    "ViewCart": {"productId": "productId", "product": "name"},
    "StartCheckout": {"cartId": "cartId", "total": "cartTotal", "quantity": "cartQuantity"},
    "Purchase": {"cartId": "cartId", "total": "cartTotal", "quantity": "cartQuantity"},
}


def _of_events(event: str, properties: str) -> dict[str, str]:
    return {
        f"activity.{'checkout' if name == 'StartCheckout' else name[0].lower() + name[1:]}.{attribute}": (
            f"CASE WHEN {event} = '{name}' THEN {properties}.{field} END"
        )
        for name, fields in _OF_EVENT.items()
        for attribute, field in fields.items()
    }


def _of_person(traits: str) -> dict[str, str]:
    return {
        "identity.name.full": f"{traits}.name",
        "identity.email": f"lower(trim({traits}.email))",
        "demographics.age": f"{traits}.age",
        "demographics.gender": f"{traits}.gender",
        "shop.persona": f"{traits}.persona",
        "shop.username": f"{traits}.username",
    }


MAPPINGS: dict[str, tuple[str, str, dict[str, str]]] = {
    "segment": (
        "coalesce('user_id:' || ltrim('0', userId), 'anonymous_id:' || anonymousId)",
        "unix_millis(timestamp)",
        {
            "activity.lastSeenAt": "unix_millis(timestamp)",
            "activity.platform": "platform",
            "activity.lastEvent": "event",
            "identity.userId": "ltrim('0', userId)",
            "identity.anonymousId": "anonymousId",
            "device.os": "CASE WHEN platform IN ('ios', 'android') THEN platform END",
            "device.model": "context.device.model",
            "device.manufacturer": "context.device.manufacturer",
            "device.osVersion": "context.device.version",
            "device.advertisingId": "context.device.advertisingId",
            **_of_person("traits"),
            **_of_events("event", "properties"),
        },
    ),
    "amplitude": (
        "coalesce('user_id:' || ltrim('0', user_id), 'device_id:' || device_id)",
        "time",
        {
            "activity.lastSeenAt": "time",
            "activity.platform": "lower(platform)",
            "activity.lastEvent": "CASE WHEN event_type <> '$identify' THEN event_type END",
            "identity.userId": "ltrim('0', user_id)",
            "identity.deviceId": "device_id",
            "device.os": "CASE WHEN platform IN ('iOS', 'Android') THEN lower(platform) END",
            "device.model": "device_model",
            "device.manufacturer": "device_manufacturer",
            "device.osVersion": "os_version",
            "device.advertisingId": "coalesce(adid, idfa)",
            **_of_person("user_properties"),
            **_of_events("event_type", "event_properties"),
        },
    ),
    "orders": (
        "'email:' || lower(trim(customer.email))",
        "unix_millis(created_at)",
        {
            "identity.email": "lower(trim(customer.email))",
            "identity.name.first": "customer.name.first",
            "identity.name.last": "customer.name.last",
            "orders.last.id": "order_id",
            "orders.last.at": "unix_millis(created_at)",
            "orders.last.total": "cart.total",
            "orders.last.items": "cart.items",
            "orders.last.cartId": "cart.id",
            "orders.last.guest": "guest",
            "address.shipping.line1": "shipping.line1",
            "address.shipping.city": "shipping.city",
            "address.shipping.region": "shipping.region",
            "address.shipping.postalCode": "shipping.postal_code",
            "address.shipping.country": "shipping.country",
        },
    ),
}
"""By source: the person, the event time in epoch milliseconds, and the attributes, as SQL expressions."""


def wide(events: DataFrame, source: str) -> DataFrame:
    """One row an event: person, at, and a column an attribute."""
    person, at, attributes = MAPPINGS[source]
    columns = [f"CAST({expression} AS STRING) AS `{name}`" for name, expression in attributes.items()]
    return events.selectExpr(f"{person} AS person", f"{at} AS at", *columns)


def long(events: DataFrame, source: str) -> DataFrame:
    """One row an event and attribute that it sets: person, at, attribute, value."""
    person, at, attributes = MAPPINGS[source]
    entries = ", ".join(
        f"struct('{name}' AS attribute, CAST({expression} AS STRING) AS value)"
        for name, expression in attributes.items()
    )
    found = events.selectExpr(
        f"{person} AS person",
        f"{at} AS at",
        f"explode(filter(array({entries}), each -> each.value IS NOT NULL)) AS entry",
    )
    return found.selectExpr("person", "at", "entry.attribute", "entry.value")


UPSERT_ROW = """
INSERT INTO profile (person, attribute, value, at) VALUES (?, ?, ?, ?)
ON CONFLICT (person, attribute) DO UPDATE SET value = excluded.value, at = excluded.at
WHERE excluded.at > profile.at"""
UPSERT_DOCUMENT = """
INSERT INTO profile (person, document) VALUES (?, ?)
ON CONFLICT (person) DO UPDATE SET document = excluded.document"""


def opened(database: str) -> sqlite3.Connection:
    """A connection that is as durable as idgraph's."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def create(database: str, table: str) -> None:
    columns = {
        "rows": "person TEXT, attribute TEXT, value TEXT, at INTEGER, PRIMARY KEY (person, attribute)",
        "documents": "person TEXT PRIMARY KEY, document TEXT",
    }[table]
    opened(database).execute(f"CREATE TABLE profile ({columns}) WITHOUT ROWID")


def write_rows(database: str, rows: Iterable[Row]) -> None:
    """Rows of (person, attribute, value, at), in one transaction."""
    connection = opened(database)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(UPSERT_ROW, rows)
    connection.execute("COMMIT")
    connection.close()


def write_documents(database: str, rows: Iterable[Row]) -> None:
    """Rows of (person, JSON object of [at, value] by attribute), merged by latest event time, in one transaction."""
    connection = opened(database)
    connection.execute("BEGIN IMMEDIATE")

    def merged() -> Iterator[Row]:
        for person, text in rows:
            stored = connection.execute("SELECT document FROM profile WHERE person = ?", (person,)).fetchone()
            if stored is None:
                yield person, text
                continue
            document, new = json.loads(stored[0]), json.loads(text)
            for attribute, entry in new.items():
                if attribute not in document or entry[0] > document[attribute][0]:
                    document[attribute] = entry
            yield person, json.dumps(document)

    connection.executemany(UPSERT_DOCUMENT, merged())
    connection.execute("COMMIT")
    connection.close()


def latest(batch: DataFrame, table: str) -> DataFrame:
    """The last value of each attribute in a micro-batch, as rows of the table."""
    rows = batch.groupBy("person", "attribute").agg(
        f.max_by("value", "at").alias("value"), f.max("at").alias("at")
    )
    if table == "rows":
        return rows
    entries = f.collect_list(f.struct("attribute", f.array(f.col("at").cast("string"), "value")))
    return rows.groupBy("person").agg(f.to_json(f.map_from_entries(entries)).alias("document"))


def writer(table: str, place: str, database: str) -> Callable[[DataFrame, int], None]:
    """The function of `foreachBatch`."""
    write = write_rows if table == "rows" else write_documents

    def of_partition(rows: Iterable[Any]) -> None:
        write(database, (tuple(row) for row in rows))

    def on_driver(batch: DataFrame, _: int) -> None:
        for part in latest(batch, table).toArrow().to_batches():
            write(database, zip(*(column.to_pylist() for column in part.columns), strict=True))

    def in_partitions(batch: DataFrame, _: int) -> None:
        latest(batch, table).foreachPartition(of_partition)

    return on_driver if place == "driver" else in_partitions


def session() -> SparkSession:
    """As many cores as idgraph's own, and the memory that its JVM and its workers have together: with 1 GiB the rows of
    ten shops do not reach the driver."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def stream(spark: SparkSession, inbox: Path, folder: Path, table: str, place: str, files: int) -> None:
    """Take all files of the inbox, so many in a micro-batch and source."""
    database = str(folder / "profiles.db")
    create(database, table)
    read = spark.readStream.option("maxFilesPerTrigger", files)
    parts = [
        long(read.schema(schema).json(str(inbox / source)), source) for source, schema in SCHEMAS.items()
    ]
    union = parts[0].union(parts[1]).union(parts[2])
    query = union.writeStream.foreachBatch(writer(table, place, database)).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inbox", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", choices=("rows", "documents"), default="rows")
    parser.add_argument("--writer", choices=("driver", "partitions"), default="driver")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--mapped", action="store_true", help="only map, into Parquet files for another peer")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    spark = session()
    started = time.monotonic()
    if arguments.mapped:
        for source, schema in SCHEMAS.items():
            mapped = wide(spark.read.schema(schema).json(str(arguments.inbox / source)), source)
            mapped.coalesce(1).write.parquet(str(arguments.folder / source))
    else:
        stream(spark, arguments.inbox, arguments.folder, arguments.table, arguments.writer, arguments.files)
    print(json.dumps({"streaming_seconds": time.monotonic() - started}))
    spark.stop()


if __name__ == "__main__":
    main()
