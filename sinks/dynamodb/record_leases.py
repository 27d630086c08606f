"""Leases by name in the table `shared`: one process at a time does something, and another one takes over from the dead.

A lease ends LEASE_SECONDS after its last renewal. Its holder renews it from a thread, and asks before it does something
that only one may do. Clocks that differ by minutes shorten leases by as much.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from idgraph.model.backoff import Retries, steady
from idgraph.model.errors import AlreadyRunningError, StoreError
from idgraph.repeating import Repeating, message_of
from sinks.dynamodb.leases import now_ms
from sinks.dynamodb.records import ABSENT, DynamoRecords, Row, Seen

LEASE_SECONDS = 60.0
RENEWALS = 12
"""Renewals before a lease would end."""

log = logging.getLogger(__name__)

_LEASES = "leases"


class RecordLease:
    """One holder's lease."""

    def __init__(self, records: DynamoRecords, name: str, seconds: float) -> None:
        self._records = records
        self._seconds = seconds
        self.holder = secrets.token_hex(8)
        self._row: Row = {"pk": _LEASES, "sk": name, "holder": self.holder}
        self._until_ms = 0

    def take(self) -> bool:
        """Whether it was free, or its holder died."""
        found = self._records.one(_LEASES, self._row["sk"])
        if found and found["until_ms"] >= now_ms():
            return False
        return self._write({"holder": found["holder"], "until_ms": found["until_ms"]} if found else ABSENT)

    def take_over(self) -> bool:
        """Whether its holder turned out to be dead: waits until it renews or gives back the lease, or the lease ends."""
        first = self._records.one(_LEASES, self._row["sk"])
        pauses = Retries(steady(self._seconds / RENEWALS / 2), 2 * self._seconds)
        while first and self._records.one(_LEASES, self._row["sk"]) == first:
            if first["until_ms"] < now_ms():
                return self.take()
            if not pauses.pause():
                break
        return False

    def renew(self) -> bool:
        """Whether it is still held."""
        if not self._write({"holder": self.holder}):
            # By a clock that is ahead of this one.
            self._until_ms = 0
            return False
        return True

    def release(self) -> None:
        """Give it back, if it is still held."""
        self._records.change(deletes=[((_LEASES, self._row["sk"]), {"holder": self.holder})])

    def require(self) -> None:
        """Raises AlreadyRunningError when it was lost: the process was stopped, or DynamoDB away, for too long."""
        if now_ms() > self._until_ms:
            raise AlreadyRunningError(f"the lease of {self._row['sk']} was lost; do it again")

    def _write(self, seen: Seen) -> bool:
        until_ms = now_ms() + int(self._seconds * 1000)
        if not self._records.change([(self._row | {"until_ms": until_ms}, seen)]):
            return False
        self._until_ms = until_ms
        return True


def leases_of(records: DynamoRecords, names: Collection[str]) -> dict[str, str]:
    """The holders of those leases that somebody holds."""
    found = records.get([(_LEASES, each) for each in names]).items()
    return {name: row["holder"] for (_, name), row in found if row["until_ms"] >= now_ms()}


@contextmanager
def leased(
    records: DynamoRecords, name: str, seconds: float = LEASE_SECONDS, outlives: bool = False
) -> Iterator[RecordLease]:
    """Hold a lease within the block. Raises AlreadyRunningError while another holds it; with `outlives` only when the holder
    has shown that it lives."""
    lease = RecordLease(records, name, seconds)
    if not (lease.take() or (outlives and lease.take_over())):
        raise AlreadyRunningError(f"running already (somebody holds the lease of {name})")

    def renew() -> None:
        if not lease.renew():
            renewing.stop.set()

    def failed(error: Exception) -> None:
        # The holder finds out by `require`, if DynamoDB stays away.
        log.warning("the lease of %s was not renewed: %s", name, message_of(error))

    renewing = Repeating(f"lease of {name}", renew, failed, pause=seconds / RENEWALS)
    try:
        with renewing:
            yield lease
    finally:
        try:
            lease.release()
        except StoreError as error:
            log.warning("the lease of %s ends in %.0f s: %s", name, seconds, error)
