"""Sessions of an activity: the present one, the last one, and how many began within a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from idgraph.model.behaviour import SessionWindow
from idgraph.model.durations import milliseconds
from idgraph.model.timelines import Entry, count_before
from transforms.behaviour.windows import (
    MOST_SHOWN,
    BehaviourSpan,
    Derived,
    condition_on_fields,
    earliest,
    is_whole,
    leaves_of,
    span,
)

_LEAST_READ = 64
"""Entries that are read at once, from the newest back."""


class SessionsDerivation:
    """A person's sessions at a moment. Raises SpecError with a pointer below `sessions`."""

    def __init__(self, sessions: SessionWindow) -> None:
        self._fields = sessions.fields
        self._gap = milliseconds(sessions.gap)
        self._cap = milliseconds(sessions.cap)
        self._span = span(sessions.over)
        self._holds = (
            None if sessions.condition is None else condition_on_fields(sessions.condition, "/condition")
        )

    def of(self, entries: Sequence[Entry], now: int, whole_from: int | None) -> Derived:
        """`entries` are sorted; all that came with a time from `whole_from` on are among them, None: all that came."""
        begin = self._span.begin(now)
        high = count_before(entries, now)
        sessions = self._sessions(entries, high, begin, now)
        enters = next((entry.time + 1 for entry in self._matching(entries[high:])), None)
        counted = [each for each in sessions if begin is None or each[0].time >= begin]
        leaves: dict[str, Any] = {"count": len(counted)}
        leaving = self._span.until(counted[0][0].time) if counted else None
        closes = self._closes(sessions[-1]) if sessions else now
        closed = sessions[:-1] if closes > now else sessions
        shown: list[Entry] = []
        for name, session in (("current", sessions if closes > now else []), ("last", closed)):
            if session:
                leaves.update(self._described(name, session[-1]))
                shown += session[-1][::-1]
        return Derived(
            leaves,
            earliest(enters, leaving, closes if closes > now else None),
            shown[:MOST_SHOWN],
            is_whole(entries, self._rests_from(sessions, len(closed), begin), whole_from),
        )

    def spans(self, entries: Sequence[Entry], now: int) -> list[BehaviourSpan]:
        """All sessions of the entries, the oldest first."""
        sessions = self._sessions(entries, count_before(entries, now), None, now)
        return [BehaviourSpan(each[0].time, each[-1].time, len(each)) for each in sessions]

    def _rests_from(self, sessions: list[Sequence[Entry]], closed: int, begin: int | None) -> int | None:
        """The time from which an entry more would change something: the last closed session and all that reach into the span
        depend on what came up to a gap before the run of entries that they are cut from."""
        if begin is None or not sessions:
            return begin if begin is None else begin - self._gap
        reaching = (at for at, each in enumerate(sessions) if each[-1].time >= begin - self._gap)
        first = min(next(reaching, len(sessions) - 1), max(closed - 1, 0))
        while first and sessions[first][0].time - sessions[first - 1][-1].time <= self._gap:
            first -= 1
        return min(begin, sessions[first][0].time) - self._gap

    def _matching(self, entries: Sequence[Entry]) -> Iterator[Entry] | Sequence[Entry]:
        return entries if self._holds is None else filter(self._holds, entries)

    def _closes(self, session: Sequence[Entry]) -> int:
        """The moment from which no entry can join a session."""
        return min(session[-1].time + self._gap, session[0].time + self._cap)

    def _sessions(
        self, entries: Sequence[Entry], high: int, begin: int | None, now: int
    ) -> list[Sequence[Entry]]:
        """The sessions before `high`, the oldest first: at least those that begin in the span, and one that is closed."""
        if begin is None:
            return self._split(list(self._matching(entries[:high])))
        read = max(high - count_before(entries, begin), _LEAST_READ)
        while True:
            low = max(high - read, 0)
            chosen = list(self._matching(entries[low:high]))
            if low:
                # More entries may belong to the run of the first one, which says where a cap cuts it.
                chosen = chosen[self._first_gap(chosen) :]
            sessions = self._split(chosen)
            has_closed = len(sessions) > 1 or (bool(sessions) and self._closes(sessions[0]) <= now)
            if not low or (has_closed and sessions[0][0].time <= begin):
                return sessions
            read *= 2

    def _first_gap(self, chosen: Sequence[Entry]) -> int:
        """The position of the first entry that is more than a gap after the one before it."""
        for position in range(1, len(chosen)):
            if chosen[position].time - chosen[position - 1].time > self._gap:
                return position
        return len(chosen)

    def _split(self, chosen: Sequence[Entry]) -> list[Sequence[Entry]]:
        sessions: list[Sequence[Entry]] = []
        first = 0
        begin = before = chosen[0][0] if chosen else 0
        for position, entry in enumerate(chosen):
            time = entry[0]
            if time - before > self._gap or time - begin >= self._cap:
                sessions.append(chosen[first:position])
                first, begin = position, time
            before = time
        return [*sessions, chosen[first:]] if chosen else []

    def _described(self, name: str, session: Sequence[Entry]) -> Iterator[tuple[str, Any]]:
        yield f"{name}.begin", session[0].time
        yield f"{name}.end", session[-1].time
        yield f"{name}.entries", len(session)
        for place, entry in (("first", session[0]), ("last", session[-1])):
            for field in self._fields:
                yield from leaves_of(entry.fields.get(field), name, place, field)
