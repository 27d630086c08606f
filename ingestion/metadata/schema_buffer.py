"""Schema changes on their way to the metadata service: buffered, freed of duplicates, sent one by one where needed.

A micro-batch is done only when its schema changes are in the journal on disk, so a crash loses none. They
leave the journal when the service has taken them. While the service is away the journal grows, and memory
does not. A change that the service refuses for good keeps no other back.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterable

from cachetools import LRUCache

from idgraph.model.classification import Proposal
from idgraph.model.errors import NotFoundError, RefusedError, StoreError
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange, SchemaUpdates
from idgraph.model.snapshots import DiscoveryDefaults, PinnedSnapshot
from idgraph.repeating import Outage, Repeating
from ingestion.metadata.schema_journal import SchemaJournal, WaitingChanges

log = logging.getLogger(__name__)

MAX_REPORTED = 100
"""Refused changes of one request that are logged one by one; of the rest the number is."""


class SchemaSender:
    """Logs changes that are refused for good: the values are stored all the same."""

    def __init__(self, updates: SchemaUpdates) -> None:
        self._updates = updates
        self.refused = 0
        """The number of changes that this sender gave up."""

    def send(self, changes: list[SchemaChange]) -> None:
        """Blocks until each change is taken or refused for good. Raises MetadataError when the service is away or refuses
        the token: keep the changes and retry."""
        refused = self._sent(changes)
        for change, reason in refused[:MAX_REPORTED]:
            # Quoted: whoever names an attribute writes no line of the log.
            log.warning(
                "the metadata service refused %s (%s): %s", json.dumps(change.path), change.data_type, reason
            )
        if len(refused) > MAX_REPORTED:
            log.warning("and %d more schema changes", len(refused) - MAX_REPORTED)
        self.refused += len(refused)

    def _sent(self, changes: list[SchemaChange]) -> list[RefusedSchemaChange]:
        try:
            return self._updates.send(changes)
        except NotFoundError:
            # Not these changes: there is no such service at this URL.
            raise
        except RefusedError as error:
            # Too large together, or one of them is no good: halves find out which.
            if len(changes) == 1:
                return [RefusedSchemaChange(changes[0], str(error))]
            half = len(changes) // 2
            return [*self._sent(changes[:half]), *self._sent(changes[half:])]


REMEMBERED = 300_000
"""The number of latest changes that are remembered, so that paths which no snapshot has are sent once a day and run. One
that is forgotten is sent again, which has no effect."""

_Key = tuple[str, str, Proposal | None, bool]


class SchemaBuffer:
    """Sends at once what comes after a pause of `interval` seconds; else when these have passed since it last sent, or
    `max_updates` are waiting. In a thread of its own, whether events flow or not. Use as a context manager."""

    def __init__(
        self, sender: SchemaSender, journal: SchemaJournal, max_updates: int, interval: float
    ) -> None:
        self._sender = sender
        self._journal = journal
        self._max_updates = max_updates
        self._interval = interval
        self._known: LRUCache[_Key, None] = LRUCache(REMEMBERED)
        self._newest: tuple[int, str] | None = None
        self._caps: tuple[DiscoveryDefaults, int] | None = None
        self._sent = -math.inf
        self._changed = threading.Condition()
        self._outage = Outage("the metadata service, for schema changes,")
        self._repeating = Repeating("schema-buffer", self._step, self._report, last=self._send_all)

    def __enter__(self) -> SchemaBuffer:
        try:
            self._journal.open(lambda change: self._remember(_key(change)))
        except OSError as error:
            raise self._failed(error) from None
        self._repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Send what is waiting, once; what the service does not take stays in the journal."""
        with self._changed:
            self._repeating.stop.set()
            self._changed.notify()
        self._repeating.close(30)
        if self._sender.refused:
            log.warning("%d schema change(s) were refused in this run", self._sender.refused)

    def add(self, changes: Iterable[SchemaChange]) -> int:
        """Take changes; gives how many were new. Durable when it returns; does not wait for the service.

        Raises StoreError when the journal cannot be written."""
        with self._changed:
            new = {key: change for change in changes if (key := _key(change)) not in self._known}
            if not new:
                return 0
            try:
                self._journal.append(new.values())
            except OSError as error:
                raise self._failed(error) from None
            for key in new:
                self._remember(key)
            self._changed.notify()
            return len(new)

    def follow(self, pinned: PinnedSnapshot) -> None:
        """A micro-batch ran under this snapshot. If it is older than the one before, the service's database was
        restored from a backup: changes that were sent since then are not in it and must be sent again."""
        with self._changed:
            if (caps := (pinned.snapshot.defaults, int(time.time() // 86400))) != self._caps:
                # Changes that were over a cap of the service may have room now.
                self._known.clear()
                self._caps = caps
            now = (pinned.snapshot.version, pinned.etag)
            if self._newest not in (None, now) and now[0] <= self._newest[0]:
                log.warning(
                    "the metadata service went back to an earlier state; schema changes are sent again"
                )
                self._known.clear()
            self._newest = now

    def waiting(self) -> int:
        """The number of changes that the service has not taken yet."""
        with self._changed:
            return self._journal.waiting

    def _step(self) -> None:
        if not self._await_work():
            self._send_some()
            self._outage.is_over()

    def _send_all(self) -> None:
        while self._send_some():
            self._outage.is_over()

    def _report(self, error: Exception) -> None:
        self._outage.show_error(error, "schema changes wait for the metadata service")

    def _await_work(self) -> bool:
        """Until there are changes to send, or none will come any more. Gives whether this is the end."""
        is_closing = self._repeating.stop.is_set
        with self._changed:
            self._changed.wait_for(lambda: self._journal.waiting or is_closing())
            if not is_closing():
                pause = self._sent + self._interval - time.monotonic()
                self._changed.wait_for(
                    lambda: is_closing() or self._journal.waiting >= self._max_updates, max(0.0, pause)
                )
            return is_closing()

    def _send_some(self) -> bool:
        """Send the first changes that wait; gives whether there were any."""
        with self._changed:
            some = self._journal.first(self._max_updates)
        if not some.changes:
            return False
        self._sent = time.monotonic()
        self._sender.send(some.changes)
        self._take(some)
        return True

    def _take(self, sent: WaitingChanges) -> None:
        with self._changed:
            try:
                self._journal.take(sent)
            except OSError as error:
                # It holds changes that were sent already; sending them again has no effect.
                log.warning("%s", self._failed(error))

    def _remember(self, key: _Key) -> None:
        self._known[key] = None

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(f"{self._journal.path}: {error.strerror}")


def _key(change: SchemaChange) -> _Key:
    return change.path, change.data_type, change.proposal, change.seen
