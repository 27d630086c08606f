"""Schema changes on their way to the metadata service: buffered, freed of duplicates, never in the way.

A micro-batch is done only when its schema changes are in the journal on disk, so a crash loses none; the
journal is emptied when the service has taken them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from ingestion.snapshots import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, write_atomically
from model.errors import MetadataError, StoreError
from model.schema_changes import SchemaChange, SchemaUpdates

log = logging.getLogger(__name__)

REMEMBERED = 200_000
"""How many sent changes are remembered, so that batches which still run under the old snapshot do not send
them again."""

_Key = tuple[str, str]


class SchemaBuffer:
    """Sends when `max_updates` are waiting or the oldest has waited `interval` seconds, in a thread of its
    own, whether events flow or not. Use as a context manager."""

    def __init__(self, updates: SchemaUpdates, journal: Path, max_updates: int, interval: float) -> None:
        self._updates = updates
        self._journal = journal
        self._max_updates = max_updates
        self._interval = interval
        self._pending: OrderedDict[_Key, SchemaChange] = OrderedDict()
        self._sent: OrderedDict[_Key, None] = OrderedDict()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="schema-buffer", daemon=True)

    def __enter__(self) -> SchemaBuffer:
        changes, is_torn = self._read_journal()
        for change in changes:
            self._pending[_key(change)] = change
        if is_torn:
            # Or the next line would be added to the torn one and be lost with it.
            self._rewrite_journal()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send what is waiting, once; what the service does not take stays in the journal."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout=30)

    def add(self, changes: Iterable[SchemaChange]) -> int:
        """Take changes; gives how many were new. Durable when it returns; does not wait for the service.

        Raises StoreError when the journal cannot be written."""
        with self._changed:
            new = {
                key: change
                for change in changes
                if (key := _key(change)) not in self._pending and key not in self._sent
            }
            if not new:
                return 0
            try:
                self._append_to_journal(new.values())
            except OSError as error:
                raise StoreError(f"{self._journal}: {error.strerror}") from None
            self._pending.update(new)
            self._changed.notify()
            return len(new)

    def waiting(self) -> int:
        """How many changes the service has not taken yet."""
        with self._changed:
            return len(self._pending)

    def _run(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing)
                if self._pending and not self._closing:
                    self._changed.wait_for(self._is_due, timeout=self._interval)
                batch = list(self._pending.values())[: self._max_updates]
                closing = self._closing
            if not batch:
                return
            try:
                self._updates.send(batch)
            except Exception as error:
                # Also what nobody expected: a thread that dies in silence would send nothing ever again.
                told = error if isinstance(error, MetadataError) else type(error).__name__
                log.warning("%d schema change(s) wait for the metadata service: %s", self.waiting(), told)
                if closing:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, timeout=pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)
            else:
                pause = FIRST_RETRY_SECONDS
                self._forget(batch)

    def _is_due(self) -> bool:
        return self._closing or len(self._pending) >= self._max_updates

    def _forget(self, batch: list[SchemaChange]) -> None:
        with self._changed:
            for change in batch:
                key = _key(change)
                self._pending.pop(key, None)
                self._sent[key] = None
            while len(self._sent) > REMEMBERED:
                self._sent.popitem(last=False)
            try:
                self._rewrite_journal()
            except OSError as error:
                # It holds changes that were sent already; sending them again has no effect.
                log.warning("%s: %s", self._journal, error.strerror)

    def _rewrite_journal(self) -> None:
        write_atomically(self._journal, b"".join(map(_line, self._pending.values())))

    def _append_to_journal(self, changes: Iterable[SchemaChange]) -> None:
        descriptor = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as stream:
            stream.write(b"".join(_line(change) for change in changes))
            stream.flush()
            os.fsync(stream.fileno())

    def _read_journal(self) -> tuple[list[SchemaChange], bool]:
        """Its changes, and whether a line of it is torn."""
        try:
            lines = self._journal.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return [], False
        except OSError as error:
            raise StoreError(f"{self._journal}: {error.strerror}") from None
        changes = []
        is_torn = bool(lines) and not lines[-1].endswith(b"\n")
        for line in lines:
            try:
                changes.append(SchemaChange.model_validate_json(line))
            except ValidationError:
                # The last line of a crash in mid-write; its batch was not done and comes again.
                log.warning("a torn line in %s was left out", self._journal)
                is_torn = True
        return changes, is_torn


def _key(change: SchemaChange) -> _Key:
    return change.path, change.data_type


def _line(change: SchemaChange) -> bytes:
    return change.model_dump_json().encode() + b"\n"
