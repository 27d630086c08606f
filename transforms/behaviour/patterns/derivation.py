"""From the definition of a row pattern to a function, and to the derived attribute: how often it matched, and its last match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from idgraph.model.behaviour import VARIABLE_PATTERN, Pattern
from idgraph.model.durations import milliseconds
from idgraph.model.errors import SpecError, SpecLimitError
from idgraph.model.timelines import Entry
from transforms.behaviour.patterns.conditions import RESERVED, compile_conditions
from transforms.behaviour.patterns.matches import CompiledPattern, Match
from transforms.behaviour.patterns.matching import Labelling, MatchRules
from transforms.behaviour.patterns.program import PatternProgram, assemble
from transforms.behaviour.patterns.text import parse
from transforms.behaviour.windows import (
    MOST_SHOWN,
    BehaviourSpan,
    Derived,
    earliest,
    is_whole,
    leaves_of,
    span,
)


def compile_pattern(pattern: Pattern) -> CompiledPattern:
    """Raises SpecError with a pointer into the definition, and with the offset in the pattern's text."""
    try:
        program = assemble(parse(pattern.pattern))
        _check_names(pattern.pattern, program)
    except SpecError as error:
        raise error.under("/pattern") from None
    conditions = compile_conditions(pattern.define, program.variables)
    if pattern.wait is not None and "$" not in pattern.pattern:
        raise SpecError("`wait` says when `$` holds, and the pattern has none", "/wait")
    return CompiledPattern(
        pattern.activities,
        MatchRules(
            program,
            conditions,
            None if pattern.within is None else milliseconds(pattern.within),
            0 if pattern.wait is None else milliseconds(pattern.wait),
            _skip(pattern.skip, program),
        ),
    )


def _check_names(text: str, program: PatternProgram) -> None:
    if not program.variables:
        raise SpecError("row pattern: it has no variable, so that no entry can match")
    for name in program.variables:
        problem = None
        if name in RESERVED:
            problem = f"no variable can be named {name}"
        elif not re.fullmatch(VARIABLE_PATTERN, name):
            problem = "the name of a variable has at most 64 characters"
        if problem:
            offset = next(each.start() for each in re.finditer(r"\w+", text) if each[0] == name)
            raise SpecError(f"row pattern, character {offset + 1}: {problem}", offset=offset)


def _skip(skip: str, program: PatternProgram) -> Callable[[Labelling], int]:
    """Where the search goes on after a match with entries: behind its begin in any case."""
    if skip == "past_last_row":
        return lambda found: found.begin + len(found.variables)
    if skip == "to_next_row":
        return lambda found: found.begin + 1
    where, name = skip.split(" ")
    if name not in program.variables:
        raise SpecError(f"the pattern has no variable {name}", "/skip")
    number, is_first = program.variables.index(name), where == "to_first"

    def to_variable(found: Labelling) -> int:
        places = [at for at, each in enumerate(found.variables) if each == number] or [0]
        return found.begin + max(places[0 if is_first else -1], 1)

    return to_variable


class PatternDerivation:
    """The matches that end within a time. Raises SpecError with a pointer below `pattern`."""

    def __init__(self, pattern: Pattern) -> None:
        self._activities = pattern.activities
        self._run = compile_pattern(pattern)
        self._span = span(pattern.over)
        self._within = 0 if pattern.within is None else milliseconds(pattern.within)

    def of(
        self, timelines: Mapping[str, Sequence[Entry]], now: int, whole_from: Mapping[str, int]
    ) -> Derived:
        """`timelines` have by activity its sorted entries, `whole_from` the time from which all that came are among them."""
        try:
            matches, changes_at = self._run(timelines, now)
        except SpecLimitError as error:
            return Derived({}, self._run.enters(timelines, now), problem=error.message)
        begin = self._span.begin(now)
        counted = [each for each in matches if begin is None or each.end >= begin]
        leaving = earliest(*(self._span.until(each.end) for each in counted))
        rests_from = None if begin is None else min([begin, *(each.begin for each in counted)]) - self._within
        return Derived(
            dict(_leaves(counted)),
            earliest(changes_at, leaving),
            _newest_first(counted)[:MOST_SHOWN],
            all(
                is_whole(timelines.get(activity, ()), rests_from, whole_from.get(activity))
                for activity in self._activities
            ),
        )

    def spans(self, timelines: Mapping[str, Sequence[Entry]], now: int) -> list[BehaviourSpan]:
        """All matches, whenever they ended, the oldest first. Raises SpecLimitError."""
        return [
            BehaviourSpan(each.begin, each.end, len(each.rows)) for each in self._run(timelines, now).matches
        ]


def _leaves(matches: Sequence[Match]) -> Iterator[tuple[str, Any]]:
    yield "count", len(matches)
    if not matches:
        return
    last = matches[-1]
    yield "last.begin", last.begin
    yield "last.end", last.end
    for variable, entries in last.entries.items():
        for field, value in entries[-1].fields.items():
            yield from leaves_of(value, "last", variable, field)


def _newest_first(matches: Sequence[Match]) -> list[Entry]:
    """The entries of the matches. Matches may share some."""
    by_order = {entry.order: entry for match in matches for _, entry in match.rows}
    return [by_order[order] for order in sorted(by_order, reverse=True)]
