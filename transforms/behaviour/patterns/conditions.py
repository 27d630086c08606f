"""The condition of a variable, by `define`: a function on an entry, with the entries that the match has so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from idgraph.model.timelines import Entry
from transforms.spec.budget import start
from transforms.spec.jmespath.compilation import compile_expression
from transforms.spec.jmespath.evaluators import is_false
from transforms.spec.limits import DEFAULT_LIMITS
from transforms.spec.pointers import pointer

ACTIVITY, TIME, PREVIOUS, FIRST = "activity", "time", "previous", "first"
RESERVED = frozenset({ACTIVITY, TIME, PREVIOUS, FIRST, "begin", "end"})
"""Names that no variable has: what a condition sees beside the fields, and what a result has beside the variables."""


Row: TypeAlias = tuple[str, Entry]
"""One entry, and before it the activity whose timeline has it."""


class Slot(NamedTuple):
    """An entry of the match that a condition reads: of variable number `variable` the first or the last one."""

    variable: int
    is_first: bool


class Condition(NamedTuple):
    """The condition of one variable. `slots` are what it reads of the match so far."""

    evaluate: Callable[[Any], Any]
    slots: tuple[Slot, ...]
    reads_previous: bool


def compile_conditions(define: Mapping[str, str], variables: Sequence[str]) -> dict[int, Condition]:
    """By number of the variable. Raises SpecError with a pointer below the pattern's definition."""
    conditions: dict[int, Condition] = {}
    for name, text in define.items():
        where = "/define" + pointer(name)
        if name not in variables:
            raise SpecError(f"the pattern has no variable {name}", where)
        try:
            expression = compile_expression(text)
        except SpecError as error:
            raise error.under(where) from None
        names = _field_names(expression.tree)
        slots = [Slot(number, False) for number, each in enumerate(variables) if each in names]
        if FIRST in names:
            slots += [Slot(number, True) for number, each in enumerate(variables) if each in names]
        conditions[variables.index(name)] = Condition(expression.evaluate, tuple(slots), PREVIOUS in names)
    return conditions


def _field_names(tree: Any) -> set[str]:
    """All keys that the expression may read, wherever it reads them."""
    names: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node["type"] == "field":
            names.add(node["value"])
        waiting += node["children"] if node["type"] != "slice" else ()
    return names


class RowConditions:
    """The conditions over the rows of one person. Conditions that do not depend on the match are evaluated once per row."""

    def __init__(
        self, conditions: Mapping[int, Condition], variables: Sequence[str], rows: Sequence[Row]
    ) -> None:
        self._conditions = conditions
        self._variables = variables
        self._rows = rows
        self._known: dict[tuple[int, ...], bool] = {}
        self._seen: dict[int, dict[str, Any]] = {}
        self.evaluated = 0
        """The number of evaluations of conditions so far."""

    def hold(self, variable: int, place: int, read: tuple[int, ...]) -> bool:
        """Whether the row at `place` is one of the variable. `read` has by slot the place of the entry that it reads, -1: none."""
        condition = self._conditions.get(variable)
        if condition is None:
            return True
        key = (variable, place, *read)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._evaluate(condition, place, read)
        return known

    def _evaluate(self, condition: Condition, place: int, read: tuple[int, ...]) -> bool:
        shown = self._shown(place)
        if read or condition.reads_previous:
            shown = {**shown, **self._others(condition, place, read)}
        self.evaluated += 1
        start(DEFAULT_LIMITS)
        try:
            return not is_false(condition.evaluate(shown))
        except TransformError:
            return False

    def _others(self, condition: Condition, place: int, read: tuple[int, ...]) -> dict[str, Any]:
        """The entries that the condition sees beside the row at hand."""
        others: dict[str, Any] = {}
        firsts: dict[str, Any] = {}
        if condition.reads_previous:
            others[PREVIOUS] = self._shown(place - 1) if place else None
        for slot, at in zip(condition.slots, read, strict=True):
            under = firsts if slot.is_first else others
            under[self._variables[slot.variable]] = None if at < 0 else self._shown(at)
        if firsts:
            others[FIRST] = firsts
        return others

    def _shown(self, place: int) -> dict[str, Any]:
        shown = self._seen.get(place)
        if shown is None:
            activity, entry = self._rows[place]
            shown = self._seen[place] = {**entry.fields, ACTIVITY: activity, TIME: entry.time}
        return shown
