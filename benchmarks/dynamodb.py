"""Writes and reads per second of the profile store in DynamoDB, beside bare clients of the same server in the same run.

The server is DynamoDB Local, which is slow and takes most of a small machine: what a write costs the client is the
figure that holds elsewhere.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from idgraph.model.store import NEW, FragmentWrite
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import TablesLocation
from sinks.dynamodb.profiles import DynamoProfileStore
from sinks.dynamodb.schema import FRAGMENTS, create_tables
from tests.support.stores import dynamodb

T = TypeVar("T")

STATE_BYTES = 600
BATCH = 500
"""Fragments that one call of the store is given."""
THREADS = 4


class Way(NamedTuple):
    """One way to write or read: items a second, and the client's CPU time for each."""

    items_per_second: int
    client_cpu_us_an_item: int


def measure(fragments: int) -> dict[str, Any]:
    """Each way with the same number of items; all writes but the plain puts are conditional."""
    with (
        tempfile.TemporaryDirectory() as folder,
        dynamodb(Path(folder)) as server,
        opened(server.url, fragments) as tables,
    ):
        ids, bare = tables.ids, tables.bare
        ways = {
            "store_new": tables.store_new(),
            "store_update": tables.timed(lambda some: tables.store.write(_writes(some, bare.bodies, 1))),
            "store_read": tables.timed(tables.store.read),
            "bare_put_unconditional": bare.timed(ids, 25, bare.put),
            "bare_insert_conditional": bare.timed(ids, 25, bare.insert),
            "bare_transactions_of_100": bare.timed(ids, 100, bare.transact),
            "bare_update_one_by_one": bare.timed(ids[: fragments // 4], 1, bare.update),
            "bare_read": bare.timed(ids, 100, bare.get),
        }
        units = tables.store.consumed()
    return {
        **{name: way._asdict() for name, way in ways.items()},
        "store_update_of_transactions": round(
            ways["store_update"].items_per_second / ways["bare_transactions_of_100"].items_per_second, 2
        ),
        "store_read_of_bare": round(
            ways["store_read"].items_per_second / ways["bare_read"].items_per_second, 2
        ),
        "items": fragments,
        "store_units": {"read": units.read, "write": units.write},
    }


class Tables(NamedTuple):
    """The store and a bare client on the same tables, and what both are given to write."""

    ids: list[str]
    store: DynamoProfileStore
    bare: Bare
    batch: int

    def timed(self, work: Callable[[Sequence[str]], object]) -> Way:
        """The store's way, `batch` fragments in a call."""
        return _timed(self.ids, self.batch, work)

    def store_new(self) -> Way:
        """New fragments, each with a link: conditional statements of PartiQL, behind plain puts of the links."""
        return self.timed(lambda some: self.store.write(_writes(some, self.bare.bodies, NEW, True)))


@contextmanager
def opened(url: str, fragments: int, batch: int = BATCH) -> Iterator[Tables]:
    """Tables of its own, of a server that is up."""
    chance = random.Random(7)
    ids = [f"realm_id:{number}" for number in chance.sample(range(10**10), fragments)]
    bodies = {each: chance.randbytes(STATE_BYTES) for each in ids}
    client = DynamoClient(TablesLocation("bench", "eu-central-1", url))
    create_tables(client)
    store = DynamoProfileStore(client.place, lambda text: text.encode().ljust(32)[-32:])
    try:
        yield Tables(ids, store, Bare(client, bodies), batch)
    finally:
        store.close()
        client.close()


def _writes(
    ids: Sequence[str], bodies: dict[str, bytes], version: int, links: bool = False
) -> list[FragmentWrite]:
    return [
        FragmentWrite(each, version, bodies[each], frozenset({each, f"email:{each}"} if links else ()))
        for each in ids
    ]


def _timed(items: Sequence[T], size: int, work: Callable[[Sequence[T]], object]) -> Way:
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(items), size):
        work(items[start : start + size])
    count = len(items)
    return Way(round(count / (time.perf_counter() - wall)), round(1e6 * (time.process_time() - cpu) / count))


class Bare:
    """boto3's client on a table of the same shape, several requests at once."""

    def __init__(self, client: DynamoClient, bodies: dict[str, bytes]) -> None:
        self._boto: Any = client._open().client
        self._table = client.table(FRAGMENTS)
        self.bodies = bodies

    def timed(self, ids: Sequence[str], size: int, work: Callable[[Sequence[str]], object]) -> Way:
        """`size` items in a request."""
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        with ThreadPoolExecutor(THREADS) as threads:
            return _timed(ids, len(ids), lambda _: list(threads.map(work, parts)))

    def put(self, ids: Sequence[str]) -> None:
        requests = [{"PutRequest": {"Item": self._item(each, 1)}} for each in ids]
        self._boto.batch_write_item(RequestItems={self._table: requests})

    def insert(self, ids: Sequence[str]) -> None:
        """The condition is that nothing is there."""
        text = f"INSERT INTO \"{self._table}\" VALUE {{'pk': ?, 'body': ?, 'revision': ?}}"
        items = [{**self._item(each, 1), "pk": {"B": b"insert" + each.encode()}} for each in ids]
        answer = self._boto.batch_execute_statement(
            Statements=[{"Statement": text, "Parameters": list(item.values())} for item in items]
        )
        assert not any("Error" in each for each in answer["Responses"])

    def transact(self, ids: Sequence[str]) -> None:
        self._boto.transact_write_items(
            TransactItems=[{"Update": {"TableName": self._table, **self._change(each, 1)}} for each in ids]
        )

    def update(self, ids: Sequence[str]) -> None:
        for each in ids:
            self._boto.update_item(TableName=self._table, **self._change(each, 2))

    def get(self, ids: Sequence[str]) -> None:
        keys = [{"pk": _key(each)} for each in ids]
        self._boto.batch_get_item(RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}})

    def _item(self, name: str, revision: int) -> dict[str, Any]:
        return {"pk": _key(name), "body": {"B": self.bodies[name]}, "revision": {"N": str(revision)}}

    def _change(self, name: str, revision: int) -> dict[str, Any]:
        return {
            "Key": {"pk": _key(name)},
            "UpdateExpression": "SET body = :body, revision = :next",
            "ConditionExpression": "revision = :revision",
            "ExpressionAttributeValues": {
                ":body": {"B": self.bodies[name]},
                ":revision": {"N": str(revision)},
                ":next": {"N": str(revision + 1)},
            },
        }


def _key(name: str) -> dict[str, bytes]:
    return {"B": b"bare" + name.encode()}
