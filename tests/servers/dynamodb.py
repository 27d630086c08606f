"""One DynamoDB Local for all tests of this process, and for the processes that they start."""

from __future__ import annotations

import functools
import hashlib
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers.aws import read_descriptions_once
from tests.servers.requirement import required, started
from tests.support.stores import dynamodb

if TYPE_CHECKING:
    from sinks.dynamodb.connection import TablesLocation

URL = "TEST_DYNAMODB_URL"
"""Reports a test's own processes where it is."""


def require_dynamodb() -> str:
    """Where the server is, started when first asked for. Skips the test, with the reason, when it cannot be
    had, or the extra `dynamodb` is not installed."""
    with required("boto3", "idgraph[dynamodb]"):
        read_descriptions_once()
        return os.environ.get(URL) or _started()


def place(folder: Path) -> TablesLocation:
    """Tables that belong to a folder, made when first asked for."""
    from sinks.dynamodb.client import DynamoClient
    from sinks.dynamodb.connection import TablesLocation
    from sinks.dynamodb.schema import create_tables

    prefix = "t" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]
    tables = TablesLocation(prefix, "eu-central-1", require_dynamodb())
    made = folder / "dynamodb-tables"
    if not made.exists():
        client = DynamoClient(tables)
        create_tables(client)
        client.close()
        made.touch()
    return tables


def stored(folder: Path) -> list[dict[str, Any]]:
    """All items of the tables of a folder, as they are on the wire; none where it has no tables."""
    from sinks.dynamodb.client import DynamoClient
    from sinks.dynamodb.schema import RECOVERY_DAYS

    if not (folder / "dynamodb-tables").exists():
        return []
    with closing(DynamoClient(place(folder))) as client:
        tables = [client.table(name) for name in RECOVERY_DAYS]
        found = [client.call("scan", each, TableName=each, ConsistentRead=True)["Items"] for each in tables]
    return [item for items in found for item in items]


def emptied_place(folder: Path) -> TablesLocation:
    """The tables of `place`, with nothing in them: to make new ones takes longer."""
    from sinks.dynamodb.client import DynamoClient
    from sinks.dynamodb.schema import DATA_KEYS, FRAGMENTS, LINKS

    tables = place(folder)
    client = DynamoClient(tables)
    for name, keys in ((FRAGMENTS, ("pk",)), (LINKS, ("pk", "sk")), (DATA_KEYS, ("fragment",))):
        table = client.table(name)
        for item in client.call("scan", table, TableName=table, ConsistentRead=True)["Items"]:
            client.call("delete_item", table, TableName=table, Key={key: item[key] for key in keys})
    client.close()
    return tables


@functools.cache
def _started() -> str:
    node, _ = started("dynamodb", dynamodb)
    os.environ[URL] = node.url
    return node.url
