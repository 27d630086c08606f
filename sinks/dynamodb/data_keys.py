"""Wrapped data keys in DynamoDB, in a table of their own with a short recovery window. See docs/dynamodb.md.

fragment  the fragment's id                            kek        the version of the key-encryption key
enveloped the data key, encrypted by it                 holder     who holds the key, or held it last
until_ms  until when, should the holder die; 0 when it is done

A key of a closed version is kept out by a transaction: every new key is written together with a look at one of
several replicas of its version's item, and closing a version writes all of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from idgraph.model.errors import ClosedVersionError
from sinks.aws_connection import Retry
from sinks.dynamodb.client import REFUSED, DynamoClient, Item
from sinks.dynamodb.connection import Capacity, TablesLocation
from sinks.dynamodb.fragments import raise_refused
from sinks.dynamodb.leases import FREE, held, now_ms
from sinks.dynamodb.schema import DATA_KEYS, KEY_VERSIONS
from transforms.privacy.keys import WrappedKey

REPLICAS = 16
"""Copies of each version's item: two transactions that look at the same one are in each other's way."""

_AT_ONCE = 100
"""Items of one transaction: keys, and the looks at their versions."""

Change = tuple[WrappedKey | None, WrappedKey]
"""The expected state of a fragment's key, and the new one."""


class DynamoDataKeys:
    """A `DataKeyStore` in tables that `create_tables` made."""

    def __init__(self, place: TablesLocation) -> None:
        self._client = DynamoClient(place)
        self._table = self._client.table(DATA_KEYS)
        self._versions = self._client.table(KEY_VERSIONS)

    def consumed(self) -> Capacity:
        """Read and write capacity units that this store has consumed."""
        return self._client.consumed()

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        keys = [{"fragment": {"S": each}} for each in {*fragment_ids} - {""}]
        found = self._client.get(DATA_KEYS, keys, "fragment, kek, enveloped")
        return {item["fragment"]["S"]: _key(item) for item in found if "enveloped" in item}

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        self._refuse_closed(keys.values())
        stored = dict(keys)
        if lost := self._change({name: (None, key) for name, key in keys.items()}):
            stored |= (found := self.get(sorted(lost)))
            if gone := lost - found.keys():
                # Erased again between the two.
                stored |= self.put_absent({name: keys[name] for name in gone})
        return stored

    def replace(self, keys: Mapping[str, tuple[WrappedKey, WrappedKey]]) -> int:
        self._refuse_closed(new for _, new in keys.values())
        return len(keys) - len(self._change(dict(keys)))

    def wrapped_by(self, version: int, after: str, limit: int) -> dict[str, WrappedKey]:
        """Reads the whole table."""
        start = {"ExclusiveStartKey": {"fragment": {"S": after}}} if after else {}
        found: dict[str, WrappedKey] = {}
        for item in self._scan(
            "fragment, kek, enveloped",
            FilterExpression="kek = :version",
            ExpressionAttributeValues={":version": {"N": str(version)}},
            **start,
        ):
            found[item["fragment"]["S"]] = _key(item)
            if len(found) == limit:
                break
        return found

    def some(self, limit: int) -> dict[str, WrappedKey]:
        # Pages of as many: an item may be what a lease left of a fragment without a key.
        items = self._scan("fragment, kek, enveloped", Limit=limit)
        return {
            item["fragment"]["S"]: _key(item)
            for item in islice((item for item in items if "enveloped" in item), limit)
        }

    def counts(self) -> dict[int, int]:
        """Reads the whole table."""
        return dict(Counter(int(item["kek"]["N"]) for item in self._scan("kek") if "kek" in item))

    def close_versions(self, versions: Iterable[int]) -> None:
        self._client.put(
            KEY_VERSIONS,
            [
                {"PutRequest": {"Item": {**_replica(version, number), "closed": {"BOOL": True}}}}
                for version in sorted(set(versions))
                for number in range(REPLICAS)
            ],
        )

    def delete(self, fragment_ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
        """A backup of the table has the keys until its recovery window is over."""
        wanted = sorted({*fragment_ids} - {""})
        with held(self._client, wanted) as lease:
            skipped = kept() if wanted else ()
            present = self.get(wanted)
            return lease.delete([each for each in wanted if each in present and each not in skipped])

    def compact(self) -> None:
        """Nothing is in a file of ours; see `delete` for backups."""
        self._client.check_open()

    @contextmanager
    def hold(self, fragment_ids: Sequence[str]) -> Iterator[dict[str, WrappedKey]]:
        with held(self._client, sorted({*fragment_ids})):
            yield self.get(fragment_ids)

    def close(self) -> None:
        self._client.close()

    def _change(self, changes: Mapping[str, Change]) -> set[str]:
        """Gives the fragments that have another key than they must have."""
        lost: set[str] = set()
        parts = list(_parts(changes))
        for part in self._client.each(self._transact, parts):
            lost |= part
        return lost

    def _transact(self, changes: Mapping[str, Change]) -> set[str]:
        lost: set[str] = set()
        retry = Retry(self._table)
        while pending := [name for name in changes if name not in lost]:
            versions = sorted({changes[name][1].kek_version for name in pending})
            looks = [_look(self._versions, version) for version in versions]
            updates = [_update(self._table, name, *changes[name]) for name in pending]
            refusals = self._client.transact(DATA_KEYS, [*looks, *updates])
            if not refusals:
                break
            raise_refused(self._table, refusals)
            if REFUSED in refusals[: len(looks)]:
                self._refuse_closed((changes[name][1] for name in pending), REPLICAS)
            refused = [name for name, each in zip(pending, refusals[len(looks) :], strict=True) if each]
            found = self.get(refused)
            changed = {name for name in refused if found.get(name) != changes[name][0]}
            if not changed:
                retry.pause("keys are held by another writer")
            lost |= changed
        return lost

    def _refuse_closed(self, keys: Iterable[WrappedKey], replicas: int = 1) -> None:
        versions = sorted({key.kek_version for key in keys})
        looked_at = [_replica(version, number) for version in versions for number in range(replicas)]
        found = self._client.get(KEY_VERSIONS, looked_at)
        for version in sorted({int(item["kek"]["N"]) for item in found}):
            raise ClosedVersionError(
                f"{self._table}: key version {version} was rotated out; if this keeps coming, the keyring is older "
                "than this table: restore the newer one"
            )

    def _scan(self, attributes: str, **request: object) -> Iterator[Item]:
        return self._client.query(
            "scan", DATA_KEYS, ConsistentRead=True, ProjectionExpression=attributes, **request
        )


def _key(item: Item) -> WrappedKey:
    return WrappedKey(int(item["kek"]["N"]), bytes(item["enveloped"]["B"]))


def _parts(changes: Mapping[str, Change]) -> Iterator[dict[str, Change]]:
    """As many as one transaction takes."""
    part: dict[str, Change] = {}
    versions: set[int] = set()
    for name in sorted(changes, key=lambda each: (changes[each][1].kek_version, each)):
        version = changes[name][1].kek_version
        if len(part) + len(versions | {version}) >= _AT_ONCE:
            yield part
            part, versions = {}, set()
        part[name] = changes[name]
        versions.add(version)
    if part:
        yield part


def _replica(version: int, number: int) -> Item:
    return {"kek": {"N": str(version)}, "replica": {"N": str(number)}}


def _look(table: str, version: int) -> Item:
    replica = _replica(version, random.randrange(REPLICAS))  # noqa: S311 - no secret
    condition = "attribute_not_exists(closed)"
    return {"ConditionCheck": {"TableName": table, "Key": replica, "ConditionExpression": condition}}


def _update(table: str, name: str, must: WrappedKey | None, new: WrappedKey) -> Item:
    values = {
        ":kek": {"N": str(new.kek_version)},
        ":wrapped": {"B": new.wrapped},
        ":now": {"N": str(now_ms())},
    }
    condition = "attribute_not_exists(enveloped)"
    if must is not None:
        condition = "kek = :must_kek AND enveloped = :must"
        values |= {":must_kek": {"N": str(must.kek_version)}, ":must": {"B": must.wrapped}}
    return {
        "Update": {
            "TableName": table,
            "Key": {"fragment": {"S": name}},
            "UpdateExpression": "SET kek = :kek, enveloped = :wrapped REMOVE holder, until_ms",
            "ConditionExpression": f"{condition} AND {FREE}",
            "ExpressionAttributeValues": values,
        }
    }
