"""Triggers: crossings of segments become messages to webhooks and topics, each at most once under its id, within limits.

A thread follows the ledger of the store, decides on each crossing (`transforms.behaviour.triggers`), and sends what is due.
One process does; others wait for its lease. A receiver that takes nothing keeps no other from its messages.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from idgraph.model.backoff import Backoff
from idgraph.model.errors import AlreadyRunningError, DamagedStateError
from idgraph.model.index import Segment
from idgraph.model.ledger import Crossing, Delivery
from idgraph.model.triggers import LedgerLine, TriggerDocument
from idgraph.repeating import Outage, Repeating, message_of
from idgraph.web.refusals import BadQueryError
from merge.identity.components import Person
from profile_service.api.trigger_decisions import (
    HIDDEN,
    Decisions,
    caller_as,
    has_consented,
    now_ms,
    person_of,
    reader_as,
)
from profile_service.api.webhooks import LEASED_SECONDS, PLACE_SECONDS, POLL_SECONDS, Webhook
from profile_service.link_documents import time_text
from profile_service.reader import ProfileReader
from profile_service.service import ProfileService
from profile_service.trigger_ledger import ROOT, Message, TriggerLedger
from profile_service.wanted import Wanted
from transforms.behaviour.triggers import is_expired

if TYPE_CHECKING:
    from idgraph.model.shared_documents import HeldLease, SharedDocuments

PAGE = 500
"""Entries of the feed between two times of sending."""
SENT_AT_ONCE = 100
"""Messages to one receiver before it is looked for new crossings, and the next receiver has its turn."""
RETRY = Backoff(base=1.0, cap=300.0, least=0.5)


class Triggers:
    """A thread for all triggers. A context manager."""

    def __init__(
        self, service: ProfileService, receivers: Sequence[Webhook], documents: SharedDocuments
    ) -> None:
        self._service = service
        self._receivers = {each.name: each for each in receivers}
        self._clearances = {each.name: each.clearance for each in receivers}
        self._documents = documents
        self._leases = ExitStack()
        self._lease: HeldLease | None = None
        self._ledger = TriggerLedger(documents)
        self._outage = Outage("triggers")
        self._next: dict[str, tuple[float, int]] = {}
        """By receiver that took nothing: when it is tried again, and how often it was."""
        self._told: set[str] = set()
        """Ids of messages whose refusal is in the ledger."""
        self._oldest_ms: int | None = None
        self._placed = -math.inf
        self._is_idle = False
        """There were no triggers: until there are, nothing is read."""
        self.name = "triggers"
        self.repeating = Repeating(self.name, self._step, self._report, last=self._leases.close)
        service.feeds.append(self)

    def __enter__(self) -> Triggers:
        self.repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.repeating.close()

    def lag_seconds(self) -> float | None:
        """Since when the oldest message is due that its receiver has not taken."""
        if self._lease is None:
            return None
        return 0.0 if self._oldest_ms is None else max(0.0, time.time() - self._oldest_ms / 1000)

    def is_failing(self) -> bool:
        """Whether a receiver took nothing the last time."""
        return bool(self._next) or self._outage.is_on

    def _report(self, error: Exception) -> None:
        self._outage.show_report(f"triggers: {message_of(error)}", "it is tried again", logging.ERROR)

    def _step(self) -> float:
        if not self._service.following.is_ready():
            return POLL_SECONDS
        if self._is_idle and not self._service.following.edition().snapshot.triggers:
            return POLL_SECONDS
        try:
            if self._lease is None:
                self._lease = self._leases.enter_context(self._documents.lease(ROOT))
                self._ledger = TriggerLedger(self._documents)
            self._follow(self._lease)
        except AlreadyRunningError:
            self._lease = None
            self._leases.close()
            return LEASED_SECONDS
        self._outage.is_over()
        return POLL_SECONDS

    def _follow(self, lease: HeldLease) -> None:
        triggers = self._service.following.edition().snapshot.triggers
        place = self._ledger.place()
        if not triggers:
            # Later ones report what comes then.
            if place is not None:
                self._ledger.keep_place(None)
            self._is_idle, self._lease = True, None
            self._leases.close()
            return
        self._is_idle = False
        store = self._service.adapters.store
        if place is None:
            place = {"cursor": store.ledger_end("")}
            self._ledger.keep_place(place)
        while not self.repeating.stop.is_set():
            self._ledger.erase_requested()
            end = store.ledger_end(place["cursor"])
            entries = store.ledger(place["cursor"], PAGE, has_changes=False)
            lease.require()
            crossings = [each for each in entries if isinstance(each, Crossing)]
            Decisions(self._service, self._clearances, self._ledger, triggers).decide(crossings)
            cursor = entries[-1].cursor if entries else end
            # Changes, which are for nobody, are not passed over again for ever.
            is_due = entries or self._placed < time.monotonic() - PLACE_SECONDS
            if cursor != place["cursor"] and is_due:
                place = {"cursor": cursor}
                self._ledger.keep_place(place)
                self._placed = time.monotonic()
            self._send(lease, {each.name: each for each in triggers})
            if len(entries) < PAGE:
                break

    def _send(self, lease: HeldLease, triggers: Mapping[str, TriggerDocument]) -> None:
        self._oldest_ms = None
        taken: Counter[str] = Counter()
        for message in self._ledger.waiting():
            now = now_ms()
            if self.repeating.stop.is_set() or message.due_ms > now:
                continue
            lease.require()
            until, failures = self._next.get(message.receiver, (0.0, 0))
            trigger = triggers.get(message.line.trigger)
            if trigger is None:
                self._end(message, "failed", "the trigger is retired")
            elif is_expired(trigger, message.due_ms, now):
                self._end(message, "failed", "the receiver did not take it in time")
            elif time.monotonic() >= until and taken[message.receiver] < SENT_AT_ONCE:
                taken[message.receiver] += 1
                refused = self._deliver(message, trigger)
                if refused is None:
                    self._next.pop(message.receiver, None)
                else:
                    self._next[message.receiver] = time.monotonic() + RETRY.pause(failures), failures + 1
                    self._note_refusal(message, refused)
            if message.receiver in self._next:
                self._oldest_ms = min(self._oldest_ms or message.due_ms, message.due_ms)

    def _deliver(self, message: Message, trigger: TriggerDocument) -> str | None:
        receiver = self._receivers.get(message.receiver)
        if receiver is None:
            return f"no {trigger.receiver_text} is configured"
        reader = reader_as(self._service, receiver.clearance)
        try:
            person = person_of(self._service, reader, message.line.profile, message.line.crossed_ms)
            segment = reader.segments(has_nameless=True).get(trigger.segment)
            document = (
                person and segment and _payload(self._service, reader, trigger, message.line, person, segment)
            )
        except (BadQueryError, DamagedStateError) as error:
            return message_of(error)
        if person is None or document is None:
            reason = "gone" if person is None else HIDDEN if segment is None else "no consent"
            self._end(message, "suppressed", reason)
            return None
        refused = receiver.sender.send([Delivery(message.line.id, reader.shown_name(person.id), document)])
        if refused is None:
            self._end(message, "fired", "")
        return refused

    def _end(self, message: Message, outcome: Any, reason: str) -> None:
        self._ledger.append(
            [message.line._replace(at_ms=now_ms(), outcome=outcome, reason=reason, until_ms=None)]
        )
        self._ledger.done(message)
        self._told.discard(message.line.id)

    def _note_refusal(self, message: Message, refused: str) -> None:
        if message.line.id not in self._told:
            self._told.add(message.line.id)
            line = message.line._replace(at_ms=now_ms(), outcome="waiting", reason=refused, until_ms=None)
            self._ledger.append([line])


def _payload(
    service: ProfileService,
    reader: ProfileReader,
    trigger: TriggerDocument,
    line: LedgerLine,
    person: Person,
    segment: Segment,
) -> dict[str, Any] | None:
    """The message; None without the consent that the view, or being in the segment, needs. Raises BadQueryError for a view that
    is gone."""
    document = {
        "trigger": trigger.name,
        "version": line.version,
        "kind": trigger.when.change,
        **({} if trigger.when.segment is None else {"segment": trigger.segment}),
        "at": time_text(line.crossed_ms),
        "profile": reader.shown_name(person.id),
    }
    # Who withdrew her consent has left: the receiver learns it.
    purpose = segment.purpose if trigger.when.change == "entered" else None
    if trigger.view is None:
        return document if has_consented(service, reader, person, purpose) else None
    view = service.views()[trigger.view]
    wanted = Wanted(None, provenance=False, reveal=False, purpose=None, view=view).with_purpose(purpose)
    reading = wanted.reading(reader)
    shown = wanted.read(service, caller_as(0), [reading.profile_of(person)], reading)
    return document | {"attributes": wanted.document(shown[0])["attributes"]} if shown else None
