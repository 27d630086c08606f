"""Webhooks and topics: the feed of changes, or of a segment, is sent to a receiver, in order, each until the
receiver takes it.

A thread follows the feed. Its place is a shared document, and moves on when a delivery was taken. After a crash in
between, the delivery comes again under the same id. One process delivers; others wait for its lease.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Protocol

from idgraph.model import canonical
from idgraph.model.backoff import Backoff
from idgraph.model.callers import Caller
from idgraph.model.errors import AlreadyRunningError, DamagedStateError, IdgraphError
from idgraph.model.index import Segment
from idgraph.model.ledger import CHANGES, Crossing, Delivery, LedgerEntry
from idgraph.repeating import Outage, Repeating, message_of
from profile_service.api.trigger_decisions import has_consented, person_of
from profile_service.history import ProfileMove
from profile_service.link_documents import move_document
from profile_service.reader import ProfileReader
from profile_service.service import ProfileService

if TYPE_CHECKING:
    from idgraph.model.shared_documents import HeldLease, SharedDocuments

POLL_SECONDS = 0.5
RETRY = Backoff(base=1.0, cap=300.0, least=0.5)
PLACE_SECONDS = 60.0
LEASED_SECONDS = 5.0
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

    def __init__(
        self, service: ProfileService, webhooks: Sequence[Webhook], documents: SharedDocuments
    ) -> None:
        """Places are kept in `documents`."""
        deliveries = [_Deliveries(service, each, documents) for each in webhooks]
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
    """The deliveries of one webhook, for as long as this process holds the lease of its place."""

    def __init__(self, service: ProfileService, webhook: Webhook, documents: SharedDocuments) -> None:
        self._service = service
        self._webhook = webhook
        self._documents = documents
        self._own = f"{webhook.kind}s/{webhook.name}"
        self._place = f"{self._own}/place.json"
        self._placed = -math.inf
        self._waiting_ms: int | None = None
        self.name = f"{webhook.kind} {webhook.name}"
        if webhook.segment is not None:
            service.uses[webhook.segment].append(self.name)
        self._outage = Outage(self.name)
        self._leases = ExitStack()
        self._lease: HeldLease | None = None
        self.repeating = Repeating(
            self.name, self._step, self._report, backoff=RETRY, last=self._leases.close
        )

    def lag_seconds(self) -> float | None:
        if self._lease is None:
            return None
        return 0.0 if self._waiting_ms is None else max(0.0, time.time() - self._waiting_ms / 1000)

    def is_failing(self) -> bool:
        return self._outage.is_on

    def _step(self) -> float:
        try:
            if self._lease is None:
                self._lease = self._leases.enter_context(self._documents.lease(self._own))
            not_taken = self._deliver(self._lease)
        except AlreadyRunningError:
            # Also where the lease was lost.
            self._lease = None
            self._leases.close()
            return LEASED_SECONDS
        except Exception as error:
            reason = f"{self.name}: {message_of(error)}"
            self._outage.show_report(reason, "it is tried again", logging.ERROR)
            return LEASED_SECONDS
        if not_taken is not None:
            raise _NotTakenError(f"{self.name}: {not_taken}")
        self._outage.is_over()
        return POLL_SECONDS

    def _report(self, error: Exception) -> None:
        self._outage.show_error(error, "its deliveries wait, in order")

    def _deliver(self, lease: HeldLease) -> str | None:
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
        known = self._documents.read(self._place)
        cursor = "" if known is None else json.loads(known)["cursor"]
        while not self.repeating.stop.is_set():
            reader = self._service.reader(caller)
            visible = reader.segments()
            if webhook.segment is not None and webhook.segment not in visible:
                return f"there is no segment {webhook.segment} for its clearance"
            history = self._service.history(reader)
            end = history.end(cursor)
            entries = self._service.adapters.store.ledger(cursor, 100, webhook.segment, reader.sees_all)
            found = history.of(entries)
            self._waiting_ms = found[0].at_ms if found else None
            if not found:
                # Entries that are not for it are not read again for ever.
                if end != cursor and self._placed < time.monotonic() - PLACE_SECONDS:
                    self._keep_place(end)
                return None
            ends = time.monotonic() + POLL_SECONDS
            for start in range(0, len(found), webhook.sender.at_once):
                some = slice(start, start + webhook.sender.at_once)
                lease.require()
                failed = webhook.sender.send(
                    [
                        _delivery(webhook.name, move)
                        for entry, move in zip(entries[some], found[some], strict=True)
                        if self._may_have(entry, reader, visible)
                    ]
                )
                if failed is not None:
                    return failed
                cursor = found[some][-1].cursor
                self._keep_place(cursor)
                if self.repeating.stop.is_set():
                    return None
                if time.monotonic() > ends:
                    # The others as they are seen by then.
                    break
        return None

    def _may_have(
        self, entry: LedgerEntry | Crossing, reader: ProfileReader, visible: Mapping[str, Segment]
    ) -> bool:
        """Whether the receiver sees the segment, and who enters it, or changes in it, consents to its purpose now."""
        if isinstance(entry, LedgerEntry):
            return True
        segment = visible.get(entry.segment.removesuffix(CHANGES))
        if segment is None or segment.purpose is None or entry.kind == "left":
            return segment is not None
        try:
            person = person_of(self._service, reader, entry.profile_hash, entry.at_ms)
            return person is not None and has_consented(self._service, reader, person, segment.purpose)
        except DamagedStateError:
            return False

    def _keep_place(self, cursor: str) -> None:
        self._documents.write(self._place, canonical.encode({"cursor": cursor}))
        self._placed = time.monotonic()


def _delivery(name: str, move: ProfileMove) -> Delivery:
    document = move_document(move)
    return Delivery(f"{name}-{document.pop('cursor')}", move.profile, document)
