"""All persons of a store from scratch, in Spark.

1. Tasks read all fragments: which identifiers each carries.
2. Spark joins the fragments that share an identifier which is no hub: connected components by alternating large-star
   and small-star (Kiveris et al., Connected Components in MapReduce and Beyond, 2014). Nodes are 64-bit hashes. Two
   that are equal by chance only put two components together, which resolve to the same persons.
3. Tasks read the fragments again, component by component, and resolve each.

The driver has the ids of all fragments in memory. All else is in Spark's hands: rows of (fragment, identifier), and
edges of two numbers. Spark encrypts its files by its own key (`spark.io.encryption`).
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all users of Spark call it

from idgraph.model.snapshots import MetadataSnapshot
from ingestion.spark.micro_batch import map_in_arrow
from ingestion.spark.sent_snapshots import packed
from ingestion.spark.tasks import rows_of
from ingestion.spark.worker_errors import error_of_spark, is_of_spark
from ingestion.spark.worker_process import only_our_errors, resources
from ingestion.spark.workers import WorkerPlan
from ingestion.stages.resolve import (
    CarriedName,
    JoinedFragment,
    ResolvedProfile,
    carried,
    pinned_together,
    resolved_profiles,
)
from merge.identity.rules import Rules
from transforms.privacy.protected_names import StoredNames

ROWS = 5000
"""Per Arrow batch that a task gives."""

_NAMES = "fragment string, identifier string, too_many long, counts int"
_PROFILES = "id string, profile binary"
_ARROW_NAMES = pa.schema(
    {"fragment": pa.string(), "identifier": pa.string(), "too_many": pa.int64(), "counts": pa.int32()}
)
_ARROW_PROFILES = pa.schema([("id", pa.string()), ("profile", pa.binary())])
_ARROW_PAGES = pa.schema([("page", pa.binary())])


def rebuilt(session: SparkSession, plan: WorkerPlan, snapshot: MetadataSnapshot) -> Iterator[ResolvedProfile]:
    """All persons by the rules of a snapshot, sorted by id in UTF-8 byte order. Raises StoreError, and FlowStoppedError for
    what Spark itself says."""
    sent = session.sparkContext.broadcast(packed(snapshot))
    try:
        for row in _profiles(session, plan, sent).toLocalIterator():
            yield from msgspec.msgpack.decode(row.page, type=list[ResolvedProfile])
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise error_of_spark(error, lambda text: text) from None


def _profiles(session: SparkSession, plan: WorkerPlan, sent: Broadcast[bytes]) -> DataFrame:
    store = resources(plan).store
    fragments = session.createDataFrame(pa.table({"fragment": pa.array(store.ids(), pa.string())}))
    names = map_in_arrow(fragments, functools.partial(_carried, plan, sent), _NAMES)
    pins = [
        CarriedName(" ".join(map(str, pair)), str(each), 0, 0)
        for pair in pinned_together(store, Rules(_snapshot(sent).identity_rules))
        for each in pair
    ]
    pinned = session.createDataFrame(_table(_ARROW_NAMES, pins))
    shared = _shared(names, pinned).localCheckpoint()
    joins = F.col("carriers") < F.col("limit")
    roots = connected(shared.where(joins & (F.col("node") > F.col("first"))).select("node", "first"))
    # With a column of lists Spark would compute the size of the whole Arrow batch for every row.
    listed = F.to_json(F.collect_list("identifier"))
    hubs = shared.where(~joins).groupBy("fragment").agg(listed.alias("hubs"))
    joined = (
        fragments.join(hubs, "fragment", "left")
        .withColumn("node", F.xxhash64("fragment"))
        .join(roots, "node", "left")
        .select(F.coalesce("first", "node").alias("component"), "fragment", "hubs")
        .repartition("component")
        .sortWithinPartitions("component")
    )
    # Sorting reads it twice.
    found = map_in_arrow(joined, functools.partial(_resolved, plan, sent), _PROFILES).localCheckpoint()
    # A row for each costs the driver more than what is in it.
    return map_in_arrow(found.sort("id"), _pages, "page binary")


def _shared(names: DataFrame, pinned: DataFrame) -> DataFrame:
    """Rows of (fragment, identifier) with the number of the fragment's node, the smallest number of those that carry the
    identifier, how many these are, and how many are too many. A pin stands as a fragment that does not count."""
    every = names.union(pinned)
    same = Window.partitionBy("identifier")
    node = F.xxhash64("fragment")
    return every.select(
        "fragment",
        "identifier",
        node.alias("node"),
        F.min(node).over(same).alias("first"),
        F.sum("counts").over(same).alias("carriers"),
        F.max("too_many").over(same).alias("limit"),
    )


def connected(edges: DataFrame) -> DataFrame:
    """Connect edges (node, first) between numbers, `first` the smaller one. Gives each node that is not the smallest
    of its component, with that one."""
    edges = edges.distinct().localCheckpoint()
    while not _is_joined(edges):
        edges = _small_star(_large_star(edges)).localCheckpoint()
    return edges


def _is_joined(edges: DataFrame) -> bool:
    """Whether each node has one smaller neighbour, which has none."""
    ends = edges.union(edges.select(F.col("first").alias("node"), F.lit(None)))
    lowest, highest = F.min("first"), F.max("first")
    is_both = F.bool_or(F.col("first").isNull())
    wrong = lowest.isNotNull() & (is_both | (lowest != highest))
    return bool(ends.groupBy("node").agg(wrong.alias("wrong")).where("wrong").isEmpty())


def _large_star(edges: DataFrame) -> DataFrame:
    """Each larger neighbour of a node, with the smallest of its neighbours and itself."""
    both = edges.union(edges.select("first", "node"))
    smallest = F.least("node", F.min("first").over(Window.partitionBy("node")))
    found = both.select("node", "first", smallest.alias("smallest")).where(F.col("first") > F.col("node"))
    return found.select(F.col("first").alias("node"), F.col("smallest").alias("first")).distinct()


def _small_star(edges: DataFrame) -> DataFrame:
    """A node and its smaller neighbours, with the smallest of these."""
    smallest = F.min("first").over(Window.partitionBy("node"))
    found = edges.select("node", "first", smallest.alias("smallest"))
    ends = F.explode(F.array("node", "first")).alias("node")
    pairs = found.select(ends, F.col("smallest").alias("first"))
    return pairs.where(F.col("node") != F.col("first")).distinct()


@only_our_errors
def _carried(
    plan: WorkerPlan, sent: Broadcast[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rules = Rules(_snapshot(sent).identity_rules)
    ids = (name for (name,) in rows_of(batches))
    yield from _in_batches(_ARROW_NAMES, carried(resources(plan).store, ids, rules))


@only_our_errors
def _resolved(
    plan: WorkerPlan, sent: Broadcast[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    tools, snapshot = resources(plan), _snapshot(sent)
    show = StoredNames(snapshot, tools.blind_index).identifier
    rows = (JoinedFragment(of, name, json.loads(hubs or "[]")) for of, name, hubs in rows_of(batches))
    profiles = resolved_profiles(tools.store, rows, Rules(snapshot.identity_rules), show)
    yield from _in_batches(_ARROW_PROFILES, ((each.id, msgspec.msgpack.encode(each)) for each in profiles))


def _pages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        page = [msgspec.Raw(each) for each in batch.column("profile").to_pylist()]
        yield pa.record_batch([[msgspec.msgpack.encode(page)]], _ARROW_PAGES)


def _snapshot(sent: Broadcast[bytes]) -> MetadataSnapshot:
    return MetadataSnapshot.model_validate_json(zlib.decompress(sent.value))


def _in_batches(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    remaining = iter(rows)
    while some := list(islice(remaining, ROWS)):
        yield from _table(schema, some).to_batches()


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, each, strict=True)) for each in rows], schema)
