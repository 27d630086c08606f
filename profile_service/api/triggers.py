"""Triggers: crossings of segments become messages to webhooks, each at most once under its id, within limits.

A thread follows the ledger of the store, decides on each crossing (`transforms.behaviour.triggers`), and sends what is due.
One process does; others wait for its lease. A receiver that takes nothing keeps no other from its messages.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from idgraph.model.backoff import Backoff
from idgraph.model.callers import Caller
from idgraph.model.durations import milliseconds
from idgraph.model.errors import AlreadyRunningError, DamagedStateError
from idgraph.model.index import Segment
from idgraph.model.ledger import Crossing, Delivery, LedgerEntry
from idgraph.model.triggers import LedgerLine, Occurrence, TriggerDocument
from idgraph.repeating import Outage, Repeating, message_of
from idgraph.web.refusals import BadQueryError
from merge.identity.components import Person
from profile_service.api.webhooks import LEASED_SECONDS, POLL_SECONDS, Webhook
from profile_service.link_documents import time_text
from profile_service.reader import ProfileReader
from profile_service.service import ProfileService
from profile_service.trigger_ledger import ROOT, Message, TriggerLedger
from profile_service.wanted import Wanted
from transforms.behaviour.triggers import decide, is_expired

if TYPE_CHECKING:
    from idgraph.model.shared_documents import HeldLease, SharedDocuments

PAGE = 200
SENT_AT_ONCE = 100
"""Messages of one webhook before it is looked for new crossings, and the next webhook has its turn."""
PASS_MS = 60_000
"""A crossing so soon behind a move of fragments may be an effect of it: the projection records both in one pass."""
RETRY = Backoff(base=1.0, cap=300.0, least=0.5)


class Triggers:
    """A thread for all triggers. A context manager."""

    def __init__(
        self, service: ProfileService, webhooks: Sequence[Webhook], documents: SharedDocuments
    ) -> None:
        self._service = service
        self._webhooks = {each.name: each for each in webhooks}
        self._documents = documents
        self._leases = ExitStack()
        self._lease: HeldLease | None = None
        self._ledger = TriggerLedger(documents)
        self._outage = Outage("triggers")
        self._next: dict[str, tuple[float, int]] = {}
        """By webhook that took nothing: when it is tried again, and how often it was."""
        self._told: set[str] = set()
        """Ids of messages whose refusal is in the ledger."""
        self._oldest_ms: int | None = None
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
            place = {"cursor": store.ledger_end(""), "moves": []}
            self._ledger.keep_place(place)
        while not self.repeating.stop.is_set():
            entries = store.ledger(place["cursor"], PAGE, has_changes=False)
            if not entries:
                break
            lease.require()
            moves = _Moves(place["moves"], entries)
            _Decisions(self._service, self._webhooks, self._ledger, triggers, moves).decide(entries)
            place = {"cursor": entries[-1].cursor, "moves": moves.since(entries[-1].at_ms - PASS_MS)}
            self._ledger.keep_place(place)
        self._send(lease, {each.name: each for each in triggers})

    def _send(self, lease: HeldLease, triggers: Mapping[str, TriggerDocument]) -> None:
        self._oldest_ms = None
        taken: Counter[str] = Counter()
        for message in self._ledger.waiting():
            now_ms = _now_ms()
            if self.repeating.stop.is_set() or message.due_ms > now_ms:
                continue
            lease.require()
            until, failures = self._next.get(message.webhook, (0.0, 0))
            trigger = triggers.get(message.line.trigger)
            if trigger is None:
                self._end(message, "failed", "the trigger is retired")
            elif is_expired(trigger, message.due_ms, now_ms):
                self._end(message, "failed", "the receiver did not take it in time")
            elif time.monotonic() >= until and taken[message.webhook] < SENT_AT_ONCE:
                taken[message.webhook] += 1
                refused = self._deliver(message, trigger)
                if refused is None:
                    self._next.pop(message.webhook, None)
                else:
                    self._next[message.webhook] = time.monotonic() + RETRY.pause(failures), failures + 1
                    self._note_refusal(message, refused)
            if message.webhook in self._next:
                self._oldest_ms = min(self._oldest_ms or message.due_ms, message.due_ms)

    def _deliver(self, message: Message, trigger: TriggerDocument) -> str | None:
        webhook = self._webhooks.get(message.webhook)
        if webhook is None:
            return f"no webhook {message.webhook} is configured"
        reader = _reader(self._service, webhook)
        try:
            person = _person(self._service, reader, message.line.profile)
            document = person and _payload(self._service, reader, trigger, message.line, person)
        except (BadQueryError, DamagedStateError) as error:
            return message_of(error)
        if person is None or document is None:
            self._end(message, "suppressed", "gone" if person is None else "no consent")
            return None
        refused = webhook.sender.send([Delivery(message.line.id, reader.shown_name(person.id), document)])
        if refused is None:
            self._end(message, "fired", "")
        return refused

    def _end(self, message: Message, outcome: Any, reason: str) -> None:
        self._ledger.append(
            [message.line._replace(at_ms=_now_ms(), outcome=outcome, reason=reason, until_ms=None)]
        )
        self._ledger.done(message)
        self._told.discard(message.line.id)

    def _note_refusal(self, message: Message, refused: str) -> None:
        if message.line.id not in self._told:
            self._told.add(message.line.id)
            line = message.line._replace(at_ms=_now_ms(), outcome="waiting", reason=refused, until_ms=None)
            self._ledger.append([line])


class _Moves:
    """Moves of fragments between profiles, and exits, around the crossings of a page: those may be their effects."""

    def __init__(self, earlier: Sequence[Any], entries: Sequence[LedgerEntry | Crossing]) -> None:
        self._moves = [tuple(each) for each in earlier]
        self._moves += [
            (each.at_ms, each.fragment.hex(), each.previous.hex(), each.profile.hex())
            for each in entries
            if isinstance(each, LedgerEntry)
        ]
        self._left = {
            (_hash(each), each.segment): each.at_ms
            for each in entries
            if isinstance(each, Crossing) and each.kind == "left"
        }

    def since(self, at_ms: int) -> list[Any]:
        """Those that may explain later crossings."""
        return [list(each) for each in self._moves if each[0] >= at_ms]

    def joined(self, profile: str, at_ms: int) -> dict[str, str]:
        """By fragment, the profile that it came from to this one just before."""
        return {
            fragment: previous
            for moved, fragment, previous, now in self._moves
            if now == profile != fragment and abs(at_ms - moved) <= PASS_MS
        }

    def is_split(self, profile: str, at_ms: int) -> bool:
        """Whether fragments left this profile, or it came out of another, just before."""
        return any(
            abs(at_ms - moved) <= PASS_MS
            for moved, _fragment, previous, now in self._moves
            if (previous == profile != now and _fragment != profile)
            or (now == profile == _fragment != previous)
        )

    def has_left(self, profile: str, segment: str, at_ms: int) -> bool:
        """Whether a profile left a segment about then."""
        left = self._left.get((profile, segment))
        return left is not None and abs(at_ms - left) <= PASS_MS


class _Decisions:
    """The decisions on the crossings of a page."""

    def __init__(
        self,
        service: ProfileService,
        webhooks: Mapping[str, Webhook],
        ledger: TriggerLedger,
        triggers: Sequence[TriggerDocument],
        moves: _Moves,
    ) -> None:
        self._service = service
        self._webhooks = webhooks
        self._ledger = ledger
        self._moves = moves
        self._of_segment: dict[tuple[str, str], list[TriggerDocument]] = defaultdict(list)
        self._groups: dict[str, list[str]] = defaultdict(list)
        for each in triggers:
            self._of_segment[each.segment, each.kind].append(each)
            if each.group:
                self._groups[each.group.name].append(each.name)
        self._sent: dict[tuple[str, str], dict[str, Any]] = {}
        self._changed: set[tuple[str, str]] = set()

    def decide(self, entries: Sequence[LedgerEntry | Crossing]) -> None:
        """Decide on what the page has, and keep it."""
        lines = [
            line
            for each in entries
            if isinstance(each, Crossing)
            for trigger in self._of_segment.get((each.segment, each.kind), ())
            for line in self._decided(trigger, each)
        ]
        self._ledger.append(lines)
        for key in sorted(self._changed):
            self._ledger.keep_sent_to(*key, self._sent[key])

    def _decided(self, trigger: TriggerDocument, crossing: Crossing) -> Iterator[LedgerLine]:
        profile, now_ms = _hash(crossing), _now_ms()
        own = self._sent_to(trigger.name, profile)
        if own["last"].get(crossing.segment, 0) >= crossing.number:
            return
        webhook = self._webhooks.get(trigger.webhook)
        person, occurrence = None, Occurrence(profile, crossing.number, crossing.at_ms, crossing.at_ms)
        if webhook is None:
            occurrence = occurrence._replace(refused=f"no webhook {trigger.webhook} is configured")
        else:
            reader = _reader(self._service, webhook)
            try:
                person = _person(self._service, reader, profile)
                occurrence = self._occurred(trigger, crossing, occurrence, reader, person)
            except DamagedStateError:
                occurrence = occurrence._replace(refused="unreadable")
        members = [profile] if person is None else self._members(person)
        sent = self._united([trigger.name], members)
        of_group = self._united(self._groups[trigger.group.name], members) if trigger.group else {}
        decision = decide(trigger, occurrence, sent, of_group, now_ms)
        line = LedgerLine(
            decision.id,
            trigger.name,
            trigger.version,
            profile,
            crossing.number,
            crossing.at_ms,
            now_ms,
            decision.outcome,
            decision.reason,
            decision.due_ms if decision.outcome == "held" else None,
        )
        own["last"][crossing.segment] = crossing.number
        if decision.outcome != "suppressed":
            own["sent"][decision.id] = crossing.at_ms
            self._ledger.wait(Message(trigger.webhook, decision.due_ms, line))
        self._changed.add((trigger.name, profile))
        yield line

    def _occurred(
        self,
        trigger: TriggerDocument,
        crossing: Crossing,
        occurrence: Occurrence,
        reader: ProfileReader,
        person: Person | None,
    ) -> Occurrence:
        segment = reader.segments(has_nameless=True).get(crossing.segment)
        if segment is None:
            return occurrence._replace(refused="the webhook's clearance does not see the segment")
        if person is None:
            return occurrence._replace(refused="gone")
        if self._name(person.id) != occurrence.profile:
            return occurrence._replace(refused="merged")
        if refused := self._moved(crossing, reader, person, segment):
            return occurrence._replace(refused=refused)
        return occurrence._replace(since_ms=_since(trigger, crossing, reader, person, segment))

    def _moved(self, crossing: Crossing, reader: ProfileReader, person: Person, segment: Segment) -> str:
        """Whether the crossing is the effect of a merge or a split: no part of the person crossed."""
        profile, at_ms = _hash(crossing), crossing.at_ms
        if self._moves.is_split(profile, at_ms):
            return "split"
        joined = self._moves.joined(profile, at_ms)
        parts: dict[str, list[Any]] = defaultdict(list)
        for each in person.members:
            parts[joined.get(self._name(each.stored.id), profile)].append(each)
        if len(parts) < 2:
            return ""
        is_entry = crossing.kind == "entered"
        if is_entry and any(self._moves.has_left(each, crossing.segment, at_ms) for each in parts):
            return "merged"
        inside = [
            reader.is_in(person._replace(members=tuple(some)), segment, at_ms) for some in parts.values()
        ]
        return "" if is_entry in inside else "merged"

    def _members(self, person: Person) -> list[str]:
        return [self._name(each.stored.id) for each in person.members]

    def _name(self, fragment: str) -> str:
        return self._service.adapters.store.name(fragment).hex()

    def _united(self, triggers: Sequence[str], members: Sequence[str]) -> dict[str, int]:
        return {
            id_: at_ms
            for trigger in triggers
            for member in members
            for id_, at_ms in self._sent_to(trigger, member)["sent"].items()
        }

    def _sent_to(self, trigger: str, profile: str) -> dict[str, Any]:
        if (trigger, profile) not in self._sent:
            self._sent[trigger, profile] = self._ledger.sent_to(trigger, profile)
        return self._sent[trigger, profile]


def _since(
    trigger: TriggerDocument, crossing: Crossing, reader: ProfileReader, person: Person, segment: Segment
) -> int:
    """The time of the change's newest event; that of the crossing, where the time moved the condition."""
    if trigger.expires is None:
        return crossing.at_ms
    before = crossing.at_ms - milliseconds(trigger.expires) - 1
    oldest, newest = reader.events_of(person, segment)
    if max(oldest, newest) > before:
        return max(oldest, newest)
    # By the same events, as of then: what was so already comes of old events that came late.
    was_so = reader.is_in(person, segment, before) == (crossing.kind == "entered")
    return before if was_so else crossing.at_ms


def _payload(
    service: ProfileService,
    reader: ProfileReader,
    trigger: TriggerDocument,
    line: LedgerLine,
    person: Person,
) -> dict[str, Any] | None:
    """The message; None without the consent that the view needs. Raises BadQueryError for a view that is gone."""
    document = {
        "trigger": trigger.name,
        "version": line.version,
        "kind": trigger.when.change,
        **({} if trigger.when.segment is None else {"segment": trigger.segment}),
        "at": time_text(line.crossed_ms),
        "profile": reader.shown_name(person.id),
    }
    if trigger.view is None:
        return document
    view = service.views()[trigger.view]
    wanted = Wanted(None, provenance=False, reveal=False, purpose=None, view=view)
    reading = wanted.reading(reader)
    shown = wanted.read(service, _caller(0), [reading.profile_of(person)], reading)
    return document | {"attributes": wanted.document(shown[0])["attributes"]} if shown else None


def _person(service: ProfileService, reader: ProfileReader, profile: str) -> Person | None:
    """The person whom the fragment of this keyed hash is part of now."""
    found = service.adapters.store.fragments_named([bytes.fromhex(profile)])
    return reader.owner_of_fragment(next(iter(found.values()))) if found else None


def _reader(service: ProfileService, webhook: Webhook) -> ProfileReader:
    return service.reader(_caller(webhook.clearance))


def _caller(clearance: int) -> Caller:
    return Caller(name="triggers", digest="", expires=None, clearance=clearance, may_reveal=False)


def _hash(crossing: Crossing) -> str:
    return bytes(crossing.profile).hex() if isinstance(crossing.profile, bytes) else crossing.profile


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
