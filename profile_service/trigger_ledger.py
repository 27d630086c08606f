"""The outcomes of crossings for triggers, as shared documents: lines of the ledger, what was sent to whom, and messages that
wait. Persons are keyed hashes of their ids.

One process writes, the one that holds the lease. Its order of writes makes a repeat after a crash harmless: messages, lines,
what was sent, and then the place in the feed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field

from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.model.documents import NAME_PATTERN
from idgraph.model.errors import AlreadyRunningError
from idgraph.model.timelines import DAY_MS
from idgraph.model.triggers import LedgerLine, Outcome, TriggerDocument
from idgraph.web.cursors import from_cursor, to_cursor
from idgraph.web.refusals import BadQueryError, UnknownSubjectError
from profile_service.link_documents import time_text
from profile_service.service import ProfileService

if TYPE_CHECKING:
    from idgraph.model.shared_documents import SharedDocuments

ROOT = "triggers"
LINES_AT_ONCE = 200
"""Lines of one document, and those that are appended together with the last: all are written again for the next."""
PLACES = 1000
"""Places of lines between the begins of two documents."""
KEPT_MS = 400 * DAY_MS
MOST_SENT = 1000
"""Deliveries of one trigger to one person that count for limits: a limit has at most so many."""


class Message(NamedTuple):
    """A message that waits for its moment, or for its receiver."""

    receiver: str
    due_ms: int
    line: LedgerLine

    @property
    def name(self) -> str:
        """The name of its document: sorted by moment, and the same whenever it is made of the same crossing."""
        return f"{ROOT}/messages/{self.receiver}/{self.line.crossed_ms:015d}-{self.line.id}.json"


class LinesPage(NamedTuple):
    """Some lines, and the cursor of those that follow."""

    items: list[LedgerLine]
    next: str | None


class TriggerLedger:
    """The documents of all triggers. Raises StoreError."""

    def __init__(self, documents: SharedDocuments) -> None:
        self._documents = documents
        self._lines: dict[str, tuple[str, list[LedgerLine]]] = {}
        """By trigger, the document that grows."""
        self._waiting: dict[str, Message] | None = None
        """By name of its document, in memory: many may wait for the end of quiet hours."""

    def place(self) -> dict[str, Any] | None:
        """The place in the feed, and the moves that explain what follows."""
        place: dict[str, Any] | None = self._read(f"{ROOT}/place.json")
        return place

    def keep_place(self, place: Mapping[str, Any] | None) -> None:
        """None: what comes meanwhile is for nobody."""
        if place is None:
            self._documents.remove(f"{ROOT}/place.json")
        else:
            self._write(f"{ROOT}/place.json", place)

    def sent_to(self, trigger: str, person: str) -> dict[str, Any]:
        """`last`: by segment the last crossing that was decided; `sent`: by id of the delivery, the moment of its crossing."""
        return self._read(_sent_to(trigger, person)) or {"last": {}, "sent": {}}

    def keep_sent_to(self, trigger: str, person: str, known: dict[str, Any]) -> None:
        """Keep what `sent_to` gives."""
        newest = sorted(known["sent"].items(), key=lambda each: -each[1])[:MOST_SENT]
        self._write(_sent_to(trigger, person), known | {"sent": dict(newest)})

    def wait(self, message: Message) -> None:
        """Keep a message until `done`. One that waits already has no effect."""
        body = {"due_ms": message.due_ms, "line": message.line.document()}
        if self._documents.add(message.name, canonical.encode(body)):
            self._known_waiting()[message.name] = message

    def waiting(self) -> list[Message]:
        """All that wait, those that were there at first by receiver, in the order of their crossings."""
        return list(self._known_waiting().values())

    def _known_waiting(self) -> dict[str, Message]:
        if self._waiting is None:
            self._waiting = {}
            for name in self._documents.names(f"{ROOT}/messages/*/*.json"):
                if (found := self._read(name)) is not None:
                    line = LedgerLine(**found["line"])
                    self._waiting[name] = Message(name.split("/")[2], found["due_ms"], line)
        return self._waiting

    def done(self, message: Message) -> None:
        """The message waits no more."""
        self._documents.remove(message.name)
        self._known_waiting().pop(message.name, None)

    def append(self, lines: Iterable[LedgerLine]) -> None:
        """Append lines, of which later ones of the same id replace earlier ones for readers."""
        added: dict[str, list[LedgerLine]] = defaultdict(list)
        for line in lines:
            added[line.trigger].append(line)
        for own in added.values():
            name, known = self._growing(own[0])
            known += own
            self._write(name, [each.document() for each in known])

    def silent(self, trigger: str) -> set[tuple[str, int, int]]:
        """Person, number and moment of the crossings that came to nothing, by the document that grows: it has all those that were
        appended together last, though the place in the feed was not kept."""
        self._load(trigger)
        _, lines = self._lines.get(trigger, ("", []))
        return {
            (each.profile, each.number, each.crossed_ms) for each in lines if each.outcome == "suppressed"
        }

    def lines(self, trigger: str, limit: int) -> list[LedgerLine]:
        """The newest lines, each id once."""
        return self.page(trigger, limit).items

    def page(self, trigger: str, limit: int, cursor: str | None = None) -> LinesPage:
        """Lines behind a cursor, the newest first, each id once, as they were when the first page was read. Raises BadQueryError
        for a foreign cursor."""
        newest, before = _places(cursor)
        found: list[LedgerLine] = []
        shown: set[str] = set()
        last = 0
        for name in reversed(self._documents.names(_log(trigger, "*"))):
            begin = int(_stem(name)) * PLACES
            for place, line in reversed(list(enumerate(self._of(name), begin))):
                if place > newest or line.id in shown:
                    continue
                newest = min(newest, place) if not shown else newest
                shown.add(line.id)
                if place >= before:
                    continue
                if len(found) == limit:
                    return LinesPage(found, to_cursor(f"{newest} {last}"))
                found.append(line)
                last = place
        return LinesPage(found, None)

    def erase_requested(self) -> None:
        """Remove all of the persons whose erasure `request_erasure` has noted. Without data of hers, she fires nothing again: a
        crossing before her erasure is nobody's."""
        requests = self._documents.names(f"{ROOT}/erasures/*.json")
        if not requests:
            return
        gone = {_stem(each) for each in requests}
        for message in self.waiting():
            if message.line.profile in gone:
                self.done(message)
        logs = self._documents.names(_log("*", "*"))
        for name in logs:
            # Nearly all have nothing of them: those are not parsed.
            content = self._documents.read(name) or b""
            if any(each.encode() in content for each in gone):
                known = self._of(name)
                self._write(name, [each.document() for each in known if each.profile not in gone])
        self._lines.clear()
        for trigger in {name.split("/")[2] for name in logs}:
            for person in gone:
                self._documents.remove(_sent_to(trigger, person))
        for name in requests:
            self._documents.remove(name)

    def _growing(self, line: LedgerLine) -> tuple[str, list[LedgerLine]]:
        self._load(line.trigger)
        name, known = self._lines.get(line.trigger, ("", []))
        if not name or len(known) >= LINES_AT_ONCE:
            last = int(_stem(name)) if name else -1
            begin = max(line.at_ms, last + 1)
            for old in self._documents.names(_log(line.trigger, "*")):
                if old < _log(line.trigger, f"{max(0, begin - KEPT_MS):015d}"):
                    for person in {each.profile for each in self._of(old)}:
                        sent = self.sent_to(line.trigger, person)["sent"].values()
                        if max(sent, default=0) < begin - KEPT_MS:
                            self._documents.remove(_sent_to(line.trigger, person))
                    self._documents.remove(old)
            name, known = _log(line.trigger, f"{begin:015d}"), []
            self._lines[line.trigger] = name, known
        return name, known

    def _load(self, trigger: str) -> None:
        names = [] if trigger in self._lines else self._documents.names(_log(trigger, "*"))
        if names:
            self._lines[trigger] = names[-1], self._of(names[-1])

    def _of(self, name: str) -> list[LedgerLine]:
        return [LedgerLine(**each) for each in self._read(name) or []]

    def _read(self, name: str) -> Any:
        known = self._documents.read(name)
        return None if known is None else json.loads(known)

    def _write(self, name: str, content: Any) -> None:
        self._documents.write(name, canonical.encode(content))


class TriggerLine(BaseModel):
    """The outcome of a crossing."""

    id: str = Field(description="Of the delivery; the receiver has it as `webhook-id`.")
    version: int = Field(description="Of the trigger.")
    profile: str = Field(description="The profile's id; `~` and a keyed hash where it is gone.")
    crossed_at: str
    at: str = Field(description="Moment of the outcome.")
    outcome: Outcome
    reason: str
    until: str | None = Field(description="The end of quiet hours that it is held for.")


def triggers_of(service: ProfileService, caller: Caller) -> list[TriggerDocument]:
    """The triggers in force whose segment exists for the caller, by name."""
    visible = service.reader(caller).segments(has_nameless=True)
    triggers = service.following.edition().snapshot.triggers
    return sorted((each for each in triggers if each.segment in visible), key=lambda each: each.name)


def ledger_of(
    service: ProfileService, caller: Caller, name: str, limit: int, cursor: str | None = None
) -> dict[str, Any]:
    """A page of a trigger's ledger, the newest lines first, as JSON has it. Callers who see everything also have those of triggers
    that are retired, or whose segment is. Raises UnknownSubjectError, BadQueryError, StoreError."""
    page = LinesPage([], None)
    if service.documents is not None and re.fullmatch(NAME_PATTERN, name):
        page = TriggerLedger(service.documents).page(name, limit, cursor)
    lines = page.items
    if all(each.name != name for each in triggers_of(service, caller)) and not (
        lines and service.reader(caller).sees_all
    ):
        raise UnknownSubjectError("there is no such trigger")
    shown = service.history(service.reader(caller)).shown(
        [(bytes.fromhex(each.profile), each.crossed_ms) for each in lines]
    )
    items = [
        {
            "id": line.id,
            "version": line.version,
            "profile": profile,
            "crossed_at": time_text(line.crossed_ms),
            "at": time_text(line.at_ms),
            "outcome": line.outcome,
            "reason": line.reason,
            "until": None if line.until_ms is None else time_text(line.until_ms),
        }
        for line, profile in zip(lines, shown, strict=True)
    ]
    return {"items": items, "next": page.next}


def request_erasure(documents: SharedDocuments, persons: Iterable[str]) -> None:
    """Remove all of these persons, keyed hashes of their fragments' ids in hexadecimal, from the ledger: here, or by the process
    that writes it, at once."""
    if not documents.names(_log("*", "*")):
        return
    for each in persons:
        documents.write(f"{ROOT}/erasures/{each}.json", b"{}")
    with suppress(AlreadyRunningError), documents.lease(ROOT):
        TriggerLedger(documents).erase_requested()


def _places(cursor: str | None) -> tuple[float, float]:
    if cursor is None:
        return inf, inf
    newest, _, before = from_cursor(cursor, str).partition(" ")
    if not (newest.isdecimal() and before.isdecimal()):
        raise BadQueryError("this is no cursor of this list")
    return int(newest), int(before)


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def _sent_to(trigger: str, person: str) -> str:
    return f"{ROOT}/people/{trigger}/{person}.json"


def _log(trigger: str, begin: str) -> str:
    return f"{ROOT}/ledger/{trigger}/{begin}.json"
