"""Finds the matches of a program among rows: leftmost, of each the one that SQL prefers, in bounded steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from idgraph.model.errors import SpecLimitError
from transforms.behaviour.patterns.conditions import Condition, Row, RowConditions
from transforms.behaviour.patterns.program import Op, PatternProgram

MOST_STEPS = 400_000
CONDITION_STEPS = 3
"""Steps of one evaluation of a pattern over a person's entries: an instruction is one, a condition on an entry three more. All
take some 0.2 s."""

_FAILED = -1
_Trail: TypeAlias = "tuple[Any, _Trail] | None"
"""The way so far, the newest first: numbers of variables for entries, states for splits."""


class Labelling(NamedTuple):
    """A match: the place of its first row, and the variable's number of each row from there."""

    begin: int
    variables: Sequence[int]


class MatchRules(NamedTuple):
    """A program with all that says which rows match. Lengths of time are milliseconds."""

    program: PatternProgram
    conditions: Mapping[int, Condition]
    within: int | None
    wait: int
    next_start: Callable[[Labelling], int]


class Search:
    """One search over a person's rows as of `now`. `is_pending` says afterwards whether the result depends on whether `wait` is over
    after the last row."""

    def __init__(self, rules: MatchRules, rows: Sequence[Row], now: int) -> None:
        self.is_pending = False
        self._rules = rules
        self._times = [entry.time for _, entry in rows]
        self._now = now
        self._steps = MOST_STEPS
        self._conditions = RowConditions(rules.conditions, rules.program.variables, rows)
        slots = dict.fromkeys(slot for each in rules.conditions.values() for slot in each.slots)
        self._none_read = (-1,) * len(slots)
        places = {slot: at for at, slot in enumerate(slots)}
        self._written = [
            [(places[slot], slot.is_first) for slot in slots if slot.variable == number]
            for number in range(len(rules.program.variables))
        ]
        self._read = [
            [places[slot] for slot in rules.conditions[number].slots] if number in rules.conditions else []
            for number in range(len(rules.program.variables))
        ]
        self._failed: set[Any] = set()

    def all(self) -> list[Labelling]:
        """All matches, empty ones too, the oldest first. Raises SpecLimitError beyond the bound of steps."""
        matches: list[Labelling] = []
        place = 0
        while place < len(self._times):
            found = self._from(place)
            self._check()
            if found is not None:
                matches.append(found)
            place = self._rules.next_start(found) if found is not None and found.variables else place + 1
        return matches

    def _from(self, begin: int) -> Labelling | None:
        """The preferred match that begins at a row.

        A state is what decides how the search goes on: instruction, row, which loops have taken an entry in their round, and
        the entries that conditions read. A state that failed once fails each time, so no state is tried twice: also not from
        another begin, unless `within` counts from there.
        """
        instructions, failed, last_time = self._rules.program.instructions, self._failed, None
        if self._rules.within is not None:
            failed, last_time = set(), self._times[begin] + self._rules.within
        at, place, rounds, read = 0, begin, -1, self._none_read
        trail: _Trail = None
        waiting: list[tuple[int, int, int, tuple[int, ...], _Trail]] = []
        while True:
            self._steps -= 1
            op, first, second = instructions[at]
            at += 1
            if op is Op.MATCH:
                after = self._after(first, place, read, last_time)
                if after is None:
                    at = _FAILED
                else:
                    read, trail, rounds = after, (first, trail), -1
                    place += 1
            elif op is Op.SPLIT:
                state = (at, place, rounds, read)
                if state in failed:
                    at = _FAILED
                else:
                    failed.add(state)
                    trail = (state, trail)
                    waiting.append((second, place, rounds, read, trail))
                    at = first
            elif op is Op.DONE:
                variables = _untried(trail, failed)
                self._steps -= len(variables)
                return Labelling(begin, variables)
            else:
                at, rounds = self._without_entry(op, first, second, (at, place, rounds))
            if at == _FAILED:
                if not waiting:
                    return None
                at, place, rounds, read, trail = waiting.pop()

    def _check(self) -> None:
        if self._steps < CONDITION_STEPS * self._conditions.evaluated:
            raise SpecLimitError(
                f"the pattern takes more than {MOST_STEPS} steps over {len(self._times)} entries of a person"
            )

    def _after(
        self, variable: int, place: int, read: tuple[int, ...], last_time: int | None
    ) -> tuple[int, ...] | None:
        """The entries that conditions read once the row at `place` is one of the variable; None: it is not."""
        self._check()
        if place == len(self._times) or (last_time is not None and self._times[place] > last_time):
            return None
        if self._written[variable]:
            read = self._with(read, variable, place)
        chosen = tuple([read[each] for each in self._read[variable]])
        return read if self._conditions.hold(variable, place, chosen) else None

    def _without_entry(self, op: Op, first: int, second: int, state: tuple[int, int, int]) -> tuple[int, int]:
        """The next instruction after one that takes no entry, and the rounds of loops that have taken one."""
        at, place, rounds = state
        if op is Op.JUMP:
            at = first
        elif op is Op.ENTER:
            rounds &= ~(1 << first)
        elif op is Op.LEAVE:
            if not rounds >> first & 1:
                at = second
                rounds |= 1 << first
        elif not (place == 0 if op is Op.BEGIN else self._is_end(place)):
            at = _FAILED
        return at, rounds

    def _with(self, read: tuple[int, ...], variable: int, place: int) -> tuple[int, ...]:
        changed = list(read)
        for at, is_first in self._written[variable]:
            if not is_first or changed[at] < 0:
                changed[at] = place
        return tuple(changed)

    def _is_end(self, place: int) -> bool:
        wait = self._rules.wait
        if place < len(self._times):
            between = place and self._times[place] - self._times[place - 1]
            return bool(wait and place) and between >= wait
        if self._now >= self._times[-1] + wait:
            return True
        self.is_pending = True
        return False


def _untried(trail: _Trail, failed: set[Any]) -> list[int]:
    """The variables of a match. The states on the way to it have not failed."""
    variables: list[int] = []
    while trail is not None:
        step, trail = trail
        if isinstance(step, tuple):
            failed.discard(step)
        else:
            variables.append(step)
    return variables[::-1]
