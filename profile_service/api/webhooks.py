"""Webhooks and topics: the feed of changes, or of a segment, is sent to a receiver, in order, each until the receiver takes
it.

A thread follows the feed. Its place is in a file, and moves on when a delivery was taken: after a crash in between, the
delivery comes again under the same id. One process delivers; others on the same folder wait for its lock.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from idgraph.files import exclusive_lock, write_atomically
from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.model.errors import AlreadyRunningError, IdgraphError
from idgraph.model.ledger import Delivery
from idgraph.outages import Outage
from profile_service.api.service import ProfileService
from profile_service.history import ProfileMove
from profile_service.link_documents import move_document

POLL_SECONDS = 0.5
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 300.0
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
        self._service = service
        self._folder = folder
        self._stop = threading.Event()
        for each in webhooks:
            if each.segment is not None:
                service.uses[each.segment].append(f"{each.kind} {each.name}")
        self._threads = [
            threading.Thread(target=self._run, args=(each,), name=f"{each.kind} {each.name}", daemon=True)
            for each in webhooks
        ]

    def __enter__(self) -> Webhooks:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, webhook: Webhook) -> None:
        state = self._folder / webhook.name
        outage, retry = Outage(f"{webhook.kind} {webhook.name}"), FIRST_RETRY_SECONDS
        while not self._stop.is_set():
            try:
                state.mkdir(mode=0o700, parents=True, exist_ok=True)
                with exclusive_lock(state):
                    while not self._stop.is_set():
                        failed = self._deliver(webhook, state / "place.json")
                        if failed is None:
                            outage.is_over()
                            retry = FIRST_RETRY_SECONDS
                            self._stop.wait(POLL_SECONDS)
                            continue
                        outage.show_report(
                            f"{webhook.kind} {webhook.name}: {failed}", "its deliveries wait, in order"
                        )
                        self._stop.wait(random.uniform(retry / 2, retry))  # noqa: S311 - no secret
                        retry = min(2 * retry, LAST_RETRY_SECONDS)
            except AlreadyRunningError:
                self._stop.wait(LOCKED_SECONDS)
            except Exception as error:
                # A thread that dies in silence would deliver no more.
                reason = str(error) if isinstance(error, IdgraphError) else type(error).__name__
                outage.show_report(
                    f"{webhook.kind} {webhook.name}: {reason}", "it is tried again", logging.ERROR
                )
                self._stop.wait(LOCKED_SECONDS)

    def _deliver(self, webhook: Webhook, file: Path) -> str | None:
        """All that came behind the place; why a delivery was not taken, or None."""
        if not self._service.following.is_ready():
            return None
        caller = Caller(
            name=f"{webhook.kind} {webhook.name}",
            digest="",
            expires=None,
            clearance=webhook.clearance,
            may_reveal=False,
        )
        cursor = json.loads(file.read_bytes())["cursor"] if file.exists() else ""
        while not self._stop.is_set():
            reader = self._service.reader(caller)
            visible = reader.segments()
            if webhook.segment is not None and webhook.segment not in visible:
                return f"there is no segment {webhook.segment} for its clearance"
            history = self._service.history(reader)
            end = history.end(cursor)
            found = history.page(cursor, 100, webhook.segment, reader.sees_all)
            if not found:
                # So that what is not for it is not read again for ever.
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
                if self._stop.is_set():
                    return None
        return None


def _delivery(name: str, move: ProfileMove) -> Delivery:
    document = move_document(move)
    return Delivery(f"{name}-{document.pop('cursor')}", move.profile, document)
