"""Queries as Elasticsearch's query language over the keys of documents.

Only words count for the relevance of an answer. Nothing that a user types is read as syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from idgraph.model.errors import QueryError
from idgraph.model.queries import (
    All,
    AnyOf,
    Condition,
    Exists,
    FullText,
    Not,
    Order,
    Prefix,
    Query,
    Range,
    Term,
)
from sinks.elasticsearch.schema import AFTER, END, column, path_key, text_key, value_key
from sinks.index_values import (
    AFTER_BEYOND,
    INFINITE,
    ORDERED_CHARACTERS,
    ValueClass,
    asked_words,
    class_of,
    number_order,
)

Json = dict[str, Any]

EVERY: Json = {"exists": {"field": "id"}}
"""Every document that was not erased."""


def compiled(query: Query) -> Json:
    """The query in Elasticsearch's language."""
    conditions = [_compiled(each) for each in query.clauses]
    if not query.is_ranked:
        return {"bool": {"filter": [*conditions, EVERY]}}
    return {"bool": {"must": conditions, "filter": [EVERY]}}


def sorting(query: Query, order: Order | None) -> list[Json]:
    """In which order matching documents come."""
    by_id: Json = {"id": "asc"}
    if order is not None:
        direction = "desc" if order.is_descending else "asc"
        return [{f"columns.{column(order.path)}": {"order": direction, "missing": "_last"}}, by_id]
    return [{"_score": "desc"}, by_id] if query.is_ranked else [by_id]


def _compiled(condition: Condition) -> Json:
    match condition:
        case All(conditions):
            return {"bool": {"must": [_compiled(each) for each in conditions] or [EVERY]}}
        case AnyOf(conditions):
            parts = [_compiled(each) for each in conditions]
            return {"bool": {"should": parts, "minimum_should_match": 1}} if parts else _NOTHING
        case Not(negated):
            return _unranked({"bool": {"filter": [EVERY], "must_not": [_compiled(negated)]}})
        case FullText():
            return _words(condition)
        case Exists(path):
            return _unranked({"term": {"paths": {"value": path_key(path)}}})
        case Prefix(path, prefix):
            start = f"{path_key(path)}{END}{prefix[:ORDERED_CHARACTERS]}"
            return _unranked({"prefix": {"texts": {"value": start}}})
        case Range():
            ranges = list(_ranges(condition))
            return _unranked({"bool": {"should": ranges, "minimum_should_match": 1}}) if ranges else _NOTHING
        case Term():
            return _unranked(_term(condition))


_NOTHING: Json = {"match_none": {}}


def _unranked(query: Json) -> Json:
    return {"constant_score": {"filter": query, "boost": 0}}


def _words(clause: FullText) -> Json:
    if clause.edits:
        # A token is a word with its path: an edit could as well lead to another path.
        raise QueryError("the index in Elasticsearch finds no mistyped words; leave `edits` out")
    found = asked_words(clause.words)
    if not found:
        return _NOTHING
    last = found.pop() if clause.is_prefix else None
    found = list(dict.fromkeys(found))
    if clause.path is None:
        ranked: list[Json] = [{"term": {"text": {"value": word}}} for word in found]
        if last is not None:
            ranked.append({"prefix": {"text": {"value": last}}})
        return {"bool": {"must": ranked}}
    # Ranked by how often a word stands there, and how rare it is. By the text of the profile, the order would tell of words in hidden attributes.
    path = path_key(clause.path)
    there: list[Json] = [{"term": {"words": {"value": word + END + path}}} for word in found]
    if last is not None:
        there.append({"regexp": {"words": f"{_literal(last)}[^{END}]*{END}{_literal(path)}"}})
    return {"bool": {"must": there}}


def _literal(text: str) -> str:
    """A text in a regular expression of Lucene's."""
    return re.sub(r"([^\w\x00-\x20])", r"\\\1", text)


def _term(clause: Term) -> Json:
    key = value_key(clause.path, clause.value)
    return _NOTHING if key is None else {"term": {key[0]: {"value": key[1]}}}


def _ranges(clause: Range) -> Iterator[Json]:
    classes = {class_of(bound) for bound in (clause.lower, clause.upper) if bound is not None}
    if len(classes) > 1:
        return
    begin = path_key(clause.path)
    if not classes or classes == {ValueClass.TEXT}:
        yield {"range": {"texts": _text_bounds(clause, begin)}}
    if not classes or classes == {ValueClass.NUMBER}:
        lower = b"" if clause.lower is None else number_order(clause.lower)
        upper = b"" if clause.upper is None else number_order(clause.upper)
        if lower is not None and upper is not None:
            yield {"range": {"numbers": _number_bounds(clause, begin, lower, upper)}}


def _number_bounds(clause: Range, begin: str, lower: bytes, upper: bytes) -> Json:
    above = "gte" if clause.include_lower else "gt"
    bounds = {above: begin + END + (lower if clause.include_lower else _behind(lower)).hex()}
    if not upper:
        return bounds | {"lt": begin + AFTER}
    if not clause.include_upper:
        return bounds | {"lt": begin + END + upper.hex()}
    return bounds | {"lte": begin + END + _behind(upper).hex()}


def _behind(key: bytes) -> bytes:
    """Behind all numbers that compare as this one: beyond a double's range these are many."""
    return key + AFTER_BEYOND if key in INFINITE else key


def _text_bounds(clause: Range, begin: str) -> Json:
    bounds: Json = {}
    if isinstance(clause.lower, str):
        bounds["gte" if clause.include_lower else "gt"] = (
            begin + END + _bound(clause.lower, behind=not clause.include_lower)
        )
    else:
        bounds["gte"] = begin + END
    if isinstance(clause.upper, str):
        bounds["lte" if clause.include_upper else "lt"] = (
            begin + END + _bound(clause.upper, behind=clause.include_upper)
        )
    else:
        bounds["lt"] = begin + AFTER
    return bounds


def _bound(text: str, behind: bool) -> str:
    """As much of a bound as is in order, and if `behind`, then behind all longer strings that begin so."""
    ordered = text[:ORDERED_CHARACTERS]
    return ordered + AFTER if behind and len(text) >= ORDERED_CHARACTERS else text_key(ordered)
