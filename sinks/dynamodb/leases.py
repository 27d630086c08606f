"""Leases of data keys in DynamoDB: whoever holds a key keeps all others from changing it.

A holder that died loses its lease after LEASE_SECONDS. This time is longer than any call of a store continues
retrying, so a holder that lives is done, or has failed, before. A process that was stopped for longer than
that in the middle of its work (a machine that slept) is reported by StoreError, and its batch is retried.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from idgraph.model.errors import StoreError
from sinks.aws_connection import RETRY_SECONDS, Retry
from sinks.dynamodb.client import DynamoClient, Item, Statement
from sinks.dynamodb.fragments import raise_refused
from sinks.dynamodb.schema import DATA_KEYS

LEASE_SECONDS = 6 * RETRY_SECONDS

FREE = "(attribute_not_exists(holder) OR until_ms < :now)"
"""The condition that nobody holds an item."""

_AT_ONCE = 100


def now_ms() -> int:
    """Epoch milliseconds. Clocks that differ by minutes shorten leases by as much."""
    return time.time_ns() // 1_000_000


class Lease:
    """One holder's lease of some fragments' keys."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = client.table(DATA_KEYS)
        self._holder = {"S": secrets.token_hex(8)}
        self._held: list[str] = []

    def take(self, fragment_ids: Sequence[str]) -> None:
        """Blocks until they are all free. In their sorted order, so that no two holders wait for each other."""
        for start in range(0, len(fragment_ids), _AT_ONCE):
            part = fragment_ids[start : start + _AT_ONCE]
            retry = Retry(self._table)
            while not self._acquire(part):
                retry.pause("keys are held by another writer")
            self._held += part

    def delete(self, fragment_ids: Sequence[str]) -> int:
        """Delete held keys; gives how many were there. Raises StoreError when the lease was lost."""
        text = f'DELETE FROM "{self._table}" WHERE fragment=? AND holder=?'  # noqa: S608 - table names
        done = self._execute(text, fragment_ids)
        gone = {each for each, refusal in zip(fragment_ids, done, strict=True) if refusal is None}
        self._held = [each for each in self._held if each not in gone]
        if len(gone) < len(fragment_ids):
            raise StoreError(f"{self._table}: the keys were held for too long; do it again")
        return len(gone)

    def release(self) -> bool:
        """Whether all were still held."""
        # The holder stays, and its time is over. Removed, it would say neither who removed it: this lease, where the
        # answer was lost and the request is made again, or somebody who took the key over when the time was over.
        # Before what has no key is deleted: of an item that is not there a DELETE is not refused, an UPDATE is.
        text = f'UPDATE "{self._table}" SET until_ms=0 WHERE fragment=? AND holder=?'  # noqa: S608 - table names
        refusals = self._execute(text, self._held)
        text = f'DELETE FROM "{self._table}" WHERE fragment=? AND holder=? AND enveloped IS MISSING'  # noqa: S608 - table names
        self._execute(text, self._held)
        return not any(refusals)

    def _acquire(self, part: Sequence[str]) -> bool:
        now = now_ms()
        values = {
            ":holder": self._holder,
            ":until": {"N": str(now + int(LEASE_SECONDS * 1000))},
            ":now": {"N": str(now)},
        }
        actions: list[Item] = [
            {
                "Update": {
                    "TableName": self._table,
                    "Key": {"fragment": {"S": each}},
                    "UpdateExpression": "SET holder = :holder, until_ms = :until",
                    # Its own, should the answer of a first attempt have been lost.
                    "ConditionExpression": f"{FREE} OR holder = :holder",
                    "ExpressionAttributeValues": values,
                }
            }
            for each in part
        ]
        return not self._client.transact(DATA_KEYS, actions)

    def _execute(self, text: str, fragment_ids: Sequence[str]) -> list[str | None]:
        statements = [Statement(text, [{"S": each}, self._holder]) for each in fragment_ids]
        refusals = self._client.execute(DATA_KEYS, statements)
        raise_refused(self._table, refusals)
        return refusals


@contextmanager
def held(client: DynamoClient, fragment_ids: Sequence[str]) -> Iterator[Lease]:
    """Hold the keys of sorted fragments, whether they have one or not, for as long as the context.

    Raises StoreError at its end when the lease was lost meanwhile.
    """
    lease = Lease(client)
    try:
        lease.take(fragment_ids)
        yield lease
    except BaseException:
        lease.release()
        raise
    if not lease.release():
        raise StoreError(f"{client.table(DATA_KEYS)}: the keys were held for too long; retry the batch")
