"""Decisions on crossings: which triggers they concern, whom, and what was sent to that person before."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from idgraph.model.callers import Caller
from idgraph.model.durations import milliseconds
from idgraph.model.errors import DamagedStateError
from idgraph.model.index import Segment
from idgraph.model.ledger import Crossing
from idgraph.model.tombstones import NO_EPOCH
from idgraph.model.triggers import LedgerLine, Occurrence, TriggerDocument
from merge.identity.components import Person
from profile_service.reader import ProfileReader
from profile_service.service import ProfileService
from profile_service.trigger_ledger import Message, TriggerLedger
from profile_service.wanted import MASKED
from transforms.behaviour.triggers import decide, is_expired, with_limits_of_groups

HIDDEN = "the receiver's clearance does not see the segment"


class Decisions:
    """The decisions on the crossings of a page."""

    def __init__(
        self,
        service: ProfileService,
        clearances: Mapping[str, int],
        ledger: TriggerLedger,
        triggers: Sequence[TriggerDocument],
    ) -> None:
        """`clearances` are those of receivers, by name."""
        self._service = service
        self._clearances = clearances
        self._ledger = ledger
        self._of_segment: dict[tuple[str, str], list[TriggerDocument]] = defaultdict(list)
        self._groups: dict[str, list[str]] = defaultdict(list)
        for each in with_limits_of_groups(triggers):
            for kind in each.kinds:
                self._of_segment[each.segment, kind].append(each)
            if each.group:
                self._groups[each.group.name].append(each.name)
        self._sent: dict[tuple[str, str], dict[str, Any]] = {}
        self._changed: set[tuple[str, str]] = set()
        self._silent: dict[str, Set[tuple[str, int, int]]] = {}
        self._readers: dict[int, tuple[ProfileReader, Mapping[str, Segment]]] = {}

    def decide(self, crossings: Sequence[Crossing]) -> None:
        """Decide on them, and keep what was decided."""
        concerned = [each for each in crossings if (each.segment, each.kind) in self._of_segment]
        fragments = fragments_of(self._service, [(each.profile_hash, each.at_ms) for each in concerned])
        lines = [
            line
            for each, fragment in zip(concerned, fragments, strict=True)
            # Nothing is noted of whom an erasure took.
            if fragment is not None
            for trigger in self._of_segment[each.segment, each.kind]
            for line in self._decided(trigger, each, fragment)
        ]
        self._ledger.append(lines)
        for key in sorted(self._changed):
            self._ledger.keep_sent_to(*key, self._sent[key])

    def _decided(self, trigger: TriggerDocument, crossing: Crossing, fragment: str) -> Iterator[LedgerLine]:
        profile = crossing.profile_hash
        now = now_ms()
        if trigger.name not in self._silent:
            self._silent[trigger.name] = self._ledger.silent(trigger.name)
        if (profile, crossing.number, crossing.at_ms) in self._silent[trigger.name]:
            return
        occurrence = Occurrence(profile, crossing.number, crossing.at_ms, crossing.at_ms, crossing.cause)
        sent: dict[str, int] = {}
        of_group: dict[str, int] = {}
        if not crossing.cause:
            if self._sent_to(trigger.name, profile)["last"].get(crossing.segment, 0) >= crossing.number:
                return
            clearance = self._clearances.get(trigger.receiver)
            reader, segments = self._reading(clearance or 0)
            try:
                person = reader.owner_of_fragment(fragment)
                if person is None:
                    return
                if clearance is None:
                    occurrence = occurrence._replace(refused=f"no {trigger.receiver_text} is configured")
                else:
                    segment = segments.get(crossing.segment)
                    occurrence = _occurred(trigger, crossing, occurrence, reader, person, segment)
                if not is_expired(trigger, occurrence.since_ms, now):
                    members = [self._name(each.stored.id) for each in person.members]
                    sent = self._united([trigger.name], members)
                    of_group = (
                        self._united(self._groups[trigger.group.name], members) if trigger.group else {}
                    )
            except DamagedStateError:
                occurrence = occurrence._replace(refused="unreadable")
        decision = decide(trigger, occurrence, sent, of_group, now)
        line = LedgerLine(
            decision.id,
            trigger.name,
            trigger.version,
            profile,
            crossing.number,
            crossing.at_ms,
            now,
            decision.outcome,
            decision.reason,
            decision.due_ms if decision.outcome == "held" else None,
        )
        if decision.outcome != "suppressed":
            own = self._sent_to(trigger.name, profile)
            own["last"][crossing.segment] = crossing.number
            own["sent"][decision.id] = crossing.at_ms
            self._ledger.wait(Message(trigger.receiver, decision.due_ms, line))
            self._changed.add((trigger.name, profile))
        yield line

    def _reading(self, clearance: int) -> tuple[ProfileReader, Mapping[str, Segment]]:
        if clearance not in self._readers:
            reader = reader_as(self._service, clearance)
            self._readers[clearance] = reader, reader.segments(has_nameless=True)
        return self._readers[clearance]

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


def _occurred(
    trigger: TriggerDocument,
    crossing: Crossing,
    occurrence: Occurrence,
    reader: ProfileReader,
    person: Person,
    segment: Segment | None,
) -> Occurrence:
    if segment is None:
        return occurrence._replace(refused=HIDDEN)
    return occurrence._replace(since_ms=_since(trigger, crossing, reader, person, segment))


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
    if not reader.follows_clock(segment):
        return before
    # By the same events, as of then: what was so already comes of old events that came late.
    if segment.attribute is not None:
        then, now = (reader.value_at(person, segment.attribute, at) for at in (before, crossing.at_ms))
        was_so = then == now
    else:
        was_so = reader.is_in(person, segment, before) == (crossing.kind == "entered")
    return before if was_so else crossing.at_ms


def fragments_of(service: ProfileService, crossed: Sequence[tuple[str, int]]) -> list[str | None]:
    """The fragments of these keyed hashes, each as of a moment; None where it was erased since."""
    store = service.adapters.store
    names = [bytes.fromhex(profile) for profile, _ in crossed]
    ids = store.fragments_named(set(names))
    erased = {name: each.until for name, each in store.tombstones(ids.values()).items()}
    found = zip(map(ids.get, names), crossed, strict=True)
    return [id_ if id_ and at_ms > erased.get(id_, NO_EPOCH) else None for id_, (_, at_ms) in found]


def person_of(service: ProfileService, reader: ProfileReader, profile: str, crossed_ms: int) -> Person | None:
    """The person whom the fragment of this keyed hash is part of now; None where it was erased since the crossing."""
    (fragment,) = fragments_of(service, [(profile, crossed_ms)])
    return None if fragment is None else reader.owner_of_fragment(fragment)


def has_consented(
    service: ProfileService, reader: ProfileReader, person: Person, purpose: str | None
) -> bool:
    """Whether a person's consent to a purpose, if there is one, is given now."""
    wanted = MASKED.with_purpose(purpose)
    reading = wanted.reading(reader)
    return not purpose or bool(wanted.read(service, caller_as(0), [reading.profile_of(person)], reading))


def reader_as(service: ProfileService, clearance: int) -> ProfileReader:
    """A reader as receivers of this clearance."""
    return service.reader(caller_as(clearance))


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def caller_as(clearance: int) -> Caller:
    """A caller of this clearance, who is no person."""
    return Caller(name="triggers", digest="", expires=None, clearance=clearance, may_reveal=False)
