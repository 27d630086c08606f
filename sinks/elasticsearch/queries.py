"""Queries as Elasticsearch's query language over the keys of documents.

Everything stands in a filter: there is no ranking, and Elasticsearch keeps what filters gave. Nothing that a
user types is read as syntax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from idgraph.model.queries import Clause, FullText, Prefix, Query, Range, Term
from sinks.elasticsearch.schema import AFTER, END, path_key, text_key, value_key
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, class_of, words
from sinks.number_keys import AFTER_BEYOND, INFINITE, number_order

Json = dict[str, Any]

EVERY: Json = {"exists": {"field": "id"}}
"""Every document that was not erased."""


def compiled(query: Query) -> Json:
    """The query in Elasticsearch's language."""
    filters = [each for clause in query.clauses for each in _filters(clause)]
    return {"bool": {"filter": filters or [EVERY]}}


def _filters(clause: Clause) -> list[Json]:
    """What must all hold."""
    if isinstance(clause, FullText):
        return [_word(word, clause.path) for word in dict.fromkeys(words(clause.words))] or [_NOTHING]
    if isinstance(clause, Prefix):
        start = f"{path_key(clause.path)}{END}{clause.prefix[:ORDERED_CHARACTERS]}"
        return [{"prefix": {"texts": {"value": start}}}]
    if isinstance(clause, Range):
        ranges = list(_ranges(clause))
        return [{"bool": {"should": ranges, "minimum_should_match": 1}}] if ranges else [_NOTHING]
    return [_term(clause)]


_NOTHING: Json = {"match_none": {}}


def _word(word: str, path: str | None) -> Json:
    if path is None:
        return {"prefix": {"words": {"value": word + END}}}
    return {"term": {"words": {"value": word + END + path_key(path)}}}


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
