"""The matches of a compiled pattern in a person's timelines at a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from idgraph.model.timelines import Entry, count_before
from transforms.behaviour.patterns.conditions import Row
from transforms.behaviour.patterns.matching import Labelling, MatchRules, Search
from transforms.behaviour.windows import earliest


class Match(NamedTuple):
    """One match. `begin` and `end` are the times of its first and last entry (epoch milliseconds); `rows` are its entries in order,
    each with the name of its variable."""

    begin: int
    end: int
    rows: Sequence[tuple[str, Entry]]

    @property
    def entries(self) -> dict[str, list[Entry]]:
        """The entries in order by variable; a variable without entries is absent."""
        by_variable: dict[str, list[Entry]] = {}
        for variable, entry in self.rows:
            by_variable.setdefault(variable, []).append(entry)
        return by_variable


class Matches(NamedTuple):
    """The result of a pattern as of a moment."""

    matches: Sequence[Match]
    """In the order of their begins. A match without entries is none."""
    changes_at: int | None
    """The least moment (epoch milliseconds) after `now` from which `$` or an entry that is still to come may give another
    result; None: never."""


class CompiledPattern:
    """A pattern as a pure function of timelines and a moment. Any number of threads may call it."""

    def __init__(self, activities: Sequence[str], rules: MatchRules) -> None:
        self._activities = tuple(dict.fromkeys(activities))
        self._rules = rules

    def __call__(self, timelines: Mapping[str, Sequence[Entry]], now: int) -> Matches:
        """The matches as of `now` (epoch milliseconds).

        `timelines` have by activity its entries, sorted by `Entry.order`; those count whose time is less than `now`. For each
        `t` with `now <= t < changes_at` the matches as of `t` are the same. Raises SpecLimitError for a person whose entries
        make the pattern take too many steps.
        """
        rows = self._rows(timelines, now)
        enters = self.enters(timelines, now)
        if not rows:
            return Matches([], enters)
        search = Search(self._rules, rows, now)
        matches = [self._match(rows, each) for each in search.all() if each.variables]
        due = rows[-1][1].time + self._rules.wait if search.is_pending else None
        return Matches(matches, earliest(enters, due))

    def enters(self, timelines: Mapping[str, Sequence[Entry]], now: int) -> int | None:
        """The moment at which the first entry that is still to come counts."""
        counting = self._counting(timelines, now).values()
        return earliest(*(entries[at].time + 1 for entries, at in counting if at < len(entries)))

    def _counting(
        self, timelines: Mapping[str, Sequence[Entry]], now: int
    ) -> dict[str, tuple[Sequence[Entry], int]]:
        """By activity its entries, and how many of these count."""
        return {
            activity: (entries, count_before(entries, now))
            for activity in self._activities
            if (entries := timelines.get(activity))
        }

    def _rows(self, timelines: Mapping[str, Sequence[Entry]], now: int) -> list[Row]:
        """The entries that count, by time, source and event id. An event with entries of several activities has these in the order in which
        the definition names the activities."""
        rows: list[Row] = []
        for activity, (entries, number) in self._counting(timelines, now).items():
            rows += zip(repeat(activity), entries[:number])
        if len(self._activities) > 1:
            # A stable sort: of equal ones the activity that is named first. It merges what is sorted already.
            rows.sort(key=lambda row: row[1][:3])
        return rows

    def _match(self, rows: Sequence[Row], found: Labelling) -> Match:
        names = self._rules.program.variables
        taken = [entry for _, entry in rows[found.begin : found.begin + len(found.variables)]]
        return Match(
            taken[0].time,
            taken[-1].time,
            [(names[number], entry) for number, entry in zip(found.variables, taken, strict=True)],
        )
