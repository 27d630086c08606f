"""Webhooks and topics: the feed of changes, or of a segment, is sent to a receiver, in order, each until the
receiver takes it.

A thread follows the feed. Its place is in a file, and moves on when a delivery was taken. After a crash in
between, the delivery comes again under the same id. One process delivers; others on the same folder wait for
its lock.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from idgraph.files import exclusive_lock, write_atomically
from idgraph.model import canonical
from idgraph.model.backoff import Backoff
from idgraph.model.callers import Caller
from idgraph.model.errors import AlreadyRunningError, IdgraphError
from idgraph.model.ledger import Delivery
from idgraph.repeating import Outage, Repeating, message_of
from profile_service.history import ProfileMove
from profile_service.link_documents import move_document
from profile_service.service import ProfileService

POLL_SECONDS = 0.5
RETRY = Backoff(base=1.0, cap=300.0, least=0.5)
PLACE_SECONDS = 60.0
LOCKED_SECONDS = 5.0
"""Until it is looked whether another process still delivers."""


class Sender(Protocol):
    """Delivers some entries once, at most `at_once`; returns why one was not taken, else None."""

    @property
    def at_once(self) -> int: ...
    def send(self, deliveries: Sequence[Delivery]) -> str | None: ...


class Webhook(NamedTuple):
    """A receiver of the crossings of a segment, or of all changes, as somebody with this clearance sees them."""

    name: str
    segment: str | None
    clearance: int
    sender: Sender
    kind: str = "webhook"


class Webhooks:
    """A thread for each webhook. A context manager."""

    def __init__(self, service: ProfileService, webhooks: Sequence[Webhook], folder: Path) -> None:
        """Places are kept in `folder`."""
        deliveries = [_Deliveries(service, each, folder) for each in webhooks]
        service.feeds += deliveries
        self._threads = [each.repeating for each in deliveries]

    def __enter__(self) -> Webhooks:
        for thread in self._threads:
            thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.stop.set()
        for thread in self._threads:
            thread.close()


class _NotTakenError(IdgraphError):
    """The receiver did not take a delivery. The message says why."""


class _Deliveries:
    """The deliveries of one webhook, for as long as this process has the lock of its place."""

    def __init__(self, service: ProfileService, webhook: Webhook, folder: Path) -> None:
        self._service = service
        self._webhook = webhook
        self._folder = folder / webhook.name
        self._waiting_ms: int | None = None
        self.name = f"{webhook.kind} {webhook.name}"
        if webhook.segment is not None:
            service.uses[webhook.segment].append(self.name)
        self._outage = Outage(self.name)
        self._lock = ExitStack()
        self._is_locked = False
        self.repeating = Repeating(self.name, self._step, self._report, backoff=RETRY, last=self._lock.close)

    def lag_seconds(self) -> float | None:
        if not self._is_locked:
            return None
        return 0.0 if self._waiting_ms is None else max(0.0, time.time() - self._waiting_ms / 1000)

    def is_failing(self) -> bool:
        return self._outage.is_on

    def _step(self) -> float:
        try:
            if not self._is_locked:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock.enter_context(exclusive_lock(self._folder))
                self._is_locked = True
            not_taken = self._deliver(self._folder / "place.json")
        except AlreadyRunningError:
            return LOCKED_SECONDS
        except Exception as error:
            reason = f"{self.name}: {message_of(error)}"
            self._outage.show_report(reason, "it is tried again", logging.ERROR)
            return LOCKED_SECONDS
        if not_taken is not None:
            raise _NotTakenError(f"{self.name}: {not_taken}")
        self._outage.is_over()
        return POLL_SECONDS

    def _report(self, error: Exception) -> None:
        self._outage.show_error(error, "its deliveries wait, in order")

    def _deliver(self, file: Path) -> str | None:
        """All that came behind the place; why a delivery was not taken, or None."""
        webhook = self._webhook
        if not self._service.following.is_ready():
            return None
        caller = Caller(
            name=self.name,
            digest="",
            expires=None,
            clearance=webhook.clearance,
            may_reveal=False,
        )
        cursor = json.loads(file.read_bytes())["cursor"] if file.exists() else ""
        while not self.repeating.stop.is_set():
            reader = self._service.reader(caller)
            visible = reader.segments()
            if webhook.segment is not None and webhook.segment not in visible:
                return f"there is no segment {webhook.segment} for its clearance"
            history = self._service.history(reader)
            end = history.end(cursor)
            found = history.page(cursor, 100, webhook.segment, reader.sees_all)
            self._waiting_ms = found[0].at_ms if found else None
            if not found:
                # Entries that are not for it are not read again for ever.
                if end != cursor and (
                    not file.exists() or file.stat().st_mtime < time.time() - PLACE_SECONDS
                ):
                    write_atomically(file, canonical.encode({"cursor": end}))
                return None
            for start in range(0, len(found), webhook.sender.at_once):
                some = found[start : start + webhook.sender.at_once]
                failed = webhook.sender.send(
                    [
                        _delivery(webhook.name, each)
                        for each in some
                        if not each.segment or each.segment in visible
                    ]
                )
                if failed is not None:
                    return failed
                cursor = some[-1].cursor
                write_atomically(file, canonical.encode({"cursor": cursor}))
                if self.repeating.stop.is_set():
                    return None
        return None


def _delivery(name: str, move: ProfileMove) -> Delivery:
    document = move_document(move)
    return Delivery(f"{name}-{document.pop('cursor')}", move.profile, document)
