"""Search queries, independent of the index, and their form in JSON.

The JSON form of a condition is an object with one member that names it:

    {"term": {"path": "activity.platform", "value": "ios"}}
    {"prefix": {"path": "identity.userId", "prefix": "44"}}
    {"range": {"path": "demographics.age", "lower": 30, "include_lower": true}}
    {"moment": {"path": "activity.lastSeenAt", "upper": "now-30d", "include_upper": false}}
    {"anniversary": {"path": "demographics.birthday", "value": "today+7d"}}
    {"words": {"words": "guitar lessons", "path": "activity.search.query", "is_prefix": false}}
    {"exists": {"path": "identity.email"}}
    {"all": [...]}, {"any": [...]}, {"not": {...}}

A query is the list of the conditions that must all hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from idgraph.model.durations import (
    TimeForm,
    anniversary,
    anniversary_days,
    lower_bound,
    moment,
    required_moment,
    upper_bound,
)
from idgraph.model.errors import QueryError

Scalar = str | int | float | bool


class Term(NamedTuple):
    """The attribute has exactly this value; of an array: one of its elements has."""

    path: str
    value: Scalar


class Prefix(NamedTuple):
    """The attribute is a string that starts with this one."""

    path: str
    prefix: str


class Range(NamedTuple):
    """The attribute lies between the bounds; None leaves a side open. Compares numbers with numbers and
    strings with strings (by code point), never one with the other."""

    path: str
    lower: str | int | float | None = None
    upper: str | int | float | None = None
    include_lower: bool = True
    include_upper: bool = True


class Relative(Range):
    """The attribute is a time between bounds that follow the clock (`idgraph.model.durations`). No index takes it: `absolute`
    makes a plain range of it once the query is asked."""

    __slots__ = ()


class Anniversary(Term):
    """The attribute is a text such as `1990-11-29`, whose anniversary is on the day of `value`, which follows the clock: `today`,
    moved by days or weeks. No index takes it: `absolute` makes plain days of it."""

    __slots__ = ()


UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
"""A run of characters of scripts whose words stand together without blanks, or with endings: Chinese, Japanese, Korean, Thai,
Lao, Burmese and Khmer. Its words are found by pairs of characters."""

MOST_EDITS = 2


class FullText(NamedTuple):
    """The attribute contains all these words, and of scripts without blanks between words all pairs of neighbours; without a path, the indexed text of the profile does. With `is_prefix` the
    last word matches the beginning of a word. Each other word may differ in `edits` characters (0 to 2; two that change places
    are one); such words do not rank."""

    words: str
    path: str | None = None
    is_prefix: bool = False
    edits: int = 0


class Exists(NamedTuple):
    """The attribute has a value."""

    path: str


class All(NamedTuple):
    """Each of the conditions holds. No condition: every profile."""

    conditions: tuple[Condition, ...]


class AnyOf(NamedTuple):
    """At least one of the conditions holds. No condition: no profile."""

    conditions: tuple[Condition, ...]


class Not(NamedTuple):
    """The condition does not hold."""

    condition: Condition


Clause = Term | Prefix | Range | FullText | Exists
Condition = Clause | All | AnyOf | Not


class Query(NamedTuple):
    """All conditions hold. None: every profile."""

    clauses: tuple[Condition, ...] = ()

    @property
    def is_ranked(self) -> bool:
        """Whether it asks for words, by which answers are ranked."""
        return any(isinstance(each, FullText) for each in positive(self))


class Order(NamedTuple):
    """Sort by an attribute: booleans, strings by code point, numbers. An array sorts by its first value in this order; a
    profile without the attribute comes last. Equal ones are sorted by id."""

    path: str
    is_descending: bool = False


def leaves(query: Query) -> Iterator[Clause]:
    """All clauses, however deep."""
    for condition in query.clauses:
        yield from _leaves(condition, under_not=True)


def positive(query: Query) -> Iterator[Clause]:
    """The clauses that are not under a `Not`."""
    for condition in query.clauses:
        yield from _leaves(condition, under_not=False)


def _leaves(condition: Condition, under_not: bool) -> Iterator[Clause]:
    if isinstance(condition, All | AnyOf):
        for each in condition.conditions:
            yield from _leaves(each, under_not)
    elif not isinstance(condition, Not):
        yield condition
    elif under_not:
        yield from _leaves(condition.condition, under_not)


def rewritten(query: Query, rewrite: Callable[[Clause], Condition]) -> Query:
    """The query with another condition in the place of each clause."""

    def visit(condition: Condition) -> Condition:
        match condition:
            case All(conditions):
                return All(tuple(map(visit, conditions)))
            case AnyOf(conditions):
                return AnyOf(tuple(map(visit, conditions)))
            case Not(negated):
                return Not(visit(negated))
            case _:
                return rewrite(condition)

    return Query(tuple(map(visit, query.clauses)))


def is_relative(query: Query) -> bool:
    """Whether its answer follows the clock."""
    return any(isinstance(each, Relative | Anniversary) for each in leaves(query))


def absolute(query: Query, now_ms: int, times: Mapping[str, TimeForm]) -> Query:
    """The query as of a moment in epoch milliseconds: with plain ranges. `times` are the forms of attributes that are times;
    others are compared as epoch milliseconds."""
    return (
        rewritten(query, lambda each: absolute_condition(each, now_ms, times))
        if is_relative(query)
        else query
    )


def absolute_condition(clause: Clause, now_ms: int, times: Mapping[str, TimeForm]) -> Condition:
    """The condition of one clause that an index takes."""
    if isinstance(clause, Anniversary):
        return AnyOf(tuple(Term(clause.path, day) for day in anniversary_days(str(clause.value), now_ms)))
    return absolute_clause(clause, now_ms, times) if isinstance(clause, Relative) else clause


def absolute_clause(clause: Relative, now_ms: int, times: Mapping[str, TimeForm]) -> Range:
    """The plain range of one clause."""
    form = times.get(clause.path, "milliseconds")
    lower = upper = None
    includes_lower, includes_upper = clause.include_lower, clause.include_upper
    if clause.lower is not None:
        lower, includes_lower = lower_bound(str(clause.lower), includes_lower, now_ms, form)
    if clause.upper is not None:
        upper, includes_upper = upper_bound(str(clause.upper), includes_upper, now_ms, form)
    return Range(clause.path, lower, upper, includes_lower, includes_upper)


def in_time_zone(query: Query, zone: str) -> Query:
    """The query with a time zone for moments that name none."""
    if zone == "UTC" or not is_relative(query):
        return query

    def placed(clause: Clause) -> Condition:
        if isinstance(clause, Anniversary):
            return clause._replace(value=str(in_zone(str(clause.value))))
        if not isinstance(clause, Relative):
            return clause
        return clause._replace(lower=in_zone(clause.lower), upper=in_zone(clause.upper))

    def in_zone(bound: str | float | None) -> str | float | None:
        found = None if bound is None else moment(str(bound))
        return bound if found is None else str(found._replace(zone=found.zone or zone))

    return rewritten(query, placed)


_NAMES: dict[str, type[Clause]] = {
    "term": Term,
    "prefix": Prefix,
    "range": Range,
    "moment": Relative,
    "anniversary": Anniversary,
    "words": FullText,
    "exists": Exists,
}
_NAME_OF = {kind: name for name, kind in _NAMES.items()}
_TYPES: dict[str, tuple[type, ...]] = {
    "path": (str,),
    "value": (str, int, float, bool),
    "prefix": (str,),
    "lower": (str, int, float),
    "upper": (str, int, float),
    "words": (str,),
    "include_lower": (bool,),
    "include_upper": (bool,),
    "is_prefix": (bool,),
    "edits": (int,),
}
_OPTIONAL = {Range: ("lower", "upper"), Relative: ("lower", "upper"), FullText: ("path",)}
MOST_NESTED = 50
"""Most nested conditions in JSON."""


def to_json(query: Query) -> list[Any]:
    """The query as JSON values; `from_json` gives it back."""
    return [_condition_to_json(each) for each in query.clauses]


def _condition_to_json(condition: Condition) -> dict[str, Any]:
    match condition:
        case All(conditions):
            return {"all": [_condition_to_json(each) for each in conditions]}
        case AnyOf(conditions):
            return {"any": [_condition_to_json(each) for each in conditions]}
        case Not(negated):
            return {"not": _condition_to_json(negated)}
        case _:
            given = {name: value for name, value in condition._asdict().items() if value is not None}
            return {_NAME_OF[type(condition)]: given}


def from_json(value: Any) -> Query:
    """The query of its JSON values. Raises QueryError that names the place."""
    return Query(_conditions(value, "", 0))


def _conditions(value: Any, place: str, depth: int) -> tuple[Condition, ...]:
    if not isinstance(value, list):
        raise QueryError(f"query{place}: a list of conditions is expected")
    return tuple(_condition(each, f"{place}/{number}", depth) for number, each in enumerate(value))


def _condition(value: Any, place: str, depth: int) -> Condition:
    if depth > MOST_NESTED:
        raise QueryError(f"query{place}: conditions are nested more than {MOST_NESTED} deep")
    if not isinstance(value, dict) or len(value) != 1:
        raise QueryError(f"query{place}: an object with one member is expected, which names the condition")
    ((name, content),) = value.items()
    place = f"{place}/{name}"
    if name == "all":
        return All(_conditions(content, place, depth + 1))
    if name == "any":
        return AnyOf(_conditions(content, place, depth + 1))
    if name == "not":
        return Not(_condition(content, place, depth + 1))
    kind = _NAMES.get(name)
    if kind is None:
        raise QueryError(f"query{place}: there are {', '.join([*_NAMES, 'all', 'any', 'not'])}")
    return _clause(kind, content, place)


def _clause(kind: type[Clause], content: Any, place: str) -> Clause:
    if not isinstance(content, dict):
        raise QueryError(f"query{place}: an object is expected")
    if unknown := content.keys() - set(kind._fields):
        raise QueryError(f"query{place}: unknown member {min(unknown, key=str)!r}; there are {kind._fields}")
    for name in kind._fields:
        if name not in content:
            if name not in kind._field_defaults:
                raise QueryError(f"query{place}: {name!r} is missing")
            continue
        given, allowed = content[name], _TYPES[name]
        if given is None and name in _OPTIONAL.get(kind, ()):
            continue
        if not isinstance(given, allowed) or (isinstance(given, bool) and bool not in allowed):
            raise QueryError(f"query{place}/{name}: a {type(given).__name__} cannot stand here")
    if content.get("edits", 0) not in range(MOST_EDITS + 1):
        raise QueryError(f"query{place}/edits: at most {MOST_EDITS}")
    if kind in (Relative, Anniversary):
        read = anniversary if kind is Anniversary else required_moment
        for name in ("lower", "upper", "value"):
            try:
                if content.get(name) is not None:
                    read(str(content[name]))
            except ValueError as error:
                raise QueryError(f"query{place}/{name}: {error}") from None
    return kind(**content)
