"""The tables in DynamoDB: keys, indexes, how they are made and what is switched on. See docs/dynamodb.md."""

from __future__ import annotations

from typing import Any

from idgraph.model.backoff import Retries, steady
from idgraph.model.errors import StoreError
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import DynamoRefusedError

FRAGMENTS = "fragments"
LINKS = "links"
DATA_KEYS = "data-keys"
KEY_VERSIONS = "key-versions"
SHARED = "shared"
DEAD_LETTER_KEYS = "dead-letter-keys"

OUTBOX = "outbox"
ERASED = "erased"
"""Sparse indexes of the fragments table: what is not projected yet, and what has a tombstone."""

SHARDS = 16
"""Partitions of each sparse index: each takes 1,000 writes per second at first."""

RECOVERY_DAYS = {FRAGMENTS: 35, LINKS: 35, DATA_KEYS: 1, KEY_VERSIONS: 35, SHARED: 35, DEAD_LETTER_KEYS: 1}
"""Days to which a table can be restored. An erased key can be brought back for so long: hence one day."""

_CREATE_SECONDS = 300

_KEYS: dict[str, list[tuple[str, str]]] = {
    FRAGMENTS: [("pk", "B")],
    LINKS: [("pk", "B"), ("sk", "B")],
    DATA_KEYS: [("fragment", "S")],
    KEY_VERSIONS: [("kek", "N"), ("replica", "N")],
    SHARED: [("pk", "S"), ("sk", "S")],
    DEAD_LETTER_KEYS: [("id", "S")],
}
_INDEXES: dict[str, list[tuple[str, str]]] = {
    OUTBOX: [("waiting", "N"), ("pk", "B")],
    ERASED: [("erased", "N"), ("pk", "B")],
}
_PROJECTED = {
    OUTBOX: ["fragment", "revision", "tombstone_version"],
    ERASED: ["tombstone_until", "tombstone_version", "unfinished", "withdrawn"],
}


def create_tables(client: DynamoClient) -> list[str]:
    """Make the tables that are missing, and switch on what protects all of them; gives the names of new ones.

    On demand, encrypted with the account's KMS key, protected against deletion, with point-in-time recovery, and
    with a stream of the fragments. Doing it twice is no error. DynamoDB Local has not all of it.
    """
    made = [name for name in _KEYS if _create(client, name)]
    for name in _KEYS:
        _await_active(client, client.table(name))
        _switch_on_recovery(client, name)
    return [client.table(name) for name in made]


def missing_tables(client: DynamoClient) -> list[str]:
    """The names of tables that are not there. Raises StoreError when DynamoDB is away or refuses."""
    missing = []
    for table in map(client.table, _KEYS):
        try:
            client.call("describe_table", table, TableName=table)
        except DynamoRefusedError as error:
            if error.code != "ResourceNotFoundException":
                raise
            missing.append(table)
    return missing


def _create(client: DynamoClient, name: str) -> bool:
    table = client.table(name)
    indexes = _INDEXES if name == FRAGMENTS else {}
    kinds = dict(_KEYS[name]) | dict(key for keys in indexes.values() for key in keys)
    request: dict[str, Any] = {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _schema(_KEYS[name]),
        "AttributeDefinitions": [
            {"AttributeName": key, "AttributeType": kind} for key, kind in kinds.items()
        ],
        "SSESpecification": {"Enabled": True, "SSEType": "KMS"},
        "DeletionProtectionEnabled": True,
        "Tags": [{"Key": "application", "Value": "idgraph"}],
    }
    if indexes:
        request["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index,
                "KeySchema": _schema(keys),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": _PROJECTED[index]},
            }
            for index, keys in indexes.items()
        ]
    try:
        client.call("create_table", table, **request)
    except DynamoRefusedError as error:
        if error.code == "ResourceInUseException":
            return False
        raise
    return True


def _schema(keys: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [
        {"AttributeName": key, "KeyType": kind}
        for (key, _), kind in zip(keys, ("HASH", "RANGE"), strict=False)
    ]


def _await_active(client: DynamoClient, table: str) -> None:
    retries = Retries(steady(0.5), _CREATE_SECONDS)
    while client.call("describe_table", table, TableName=table)["Table"]["TableStatus"] != "ACTIVE":
        if not retries.pause():
            raise StoreError(f"DynamoDB table {table}: is not ready after {_CREATE_SECONDS} s")


def _switch_on_recovery(client: DynamoClient, name: str) -> None:
    table = client.table(name)
    try:
        client.call(
            "update_continuous_backups",
            table,
            TableName=table,
            PointInTimeRecoverySpecification={
                "PointInTimeRecoveryEnabled": True,
                "RecoveryPeriodInDays": RECOVERY_DAYS[name],
            },
        )
    except DynamoRefusedError as error:
        # DynamoDB Local has no backups.
        if error.code != "UnknownOperationException":
            raise
