"""Queries in tantivy's form.

A user's text is never read as syntax: ranges, which only tantivy's own query language has for text, are over keys
in hexadecimal. Only words count for the relevance of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tantivy import Index, Occur
from tantivy import Query as Compiled

from idgraph.model.queries import All, AnyOf, Condition, Exists, FullText, Not, Prefix, Query, Range, Term
from sinks.index_values import (
    AFTER_BEYOND,
    INFINITE,
    ORDERED_CHARACTERS,
    ValueClass,
    asked_words,
    class_of,
    number_order,
)
from sinks.tantivy.documents import (
    BEHIND,
    NUMBERS,
    SCHEMA,
    TEXTS,
    column_path,
    path_key,
    value_key,
)


def compiled(query: Query, index: Index) -> Compiled:
    """The query for the documents of this index, without tombstones."""
    return _all([_compiled(each, index) for each in query.clauses])


def _compiled(condition: Condition, index: Index) -> Compiled:
    match condition:
        case All(conditions):
            return _all([_compiled(each, index) for each in conditions])
        case AnyOf(conditions):
            return _any([_compiled(each, index) for each in conditions])
        case Not(negated):
            parts = [(Occur.Must, every()), (Occur.MustNot, _compiled(negated, index))]
            return _unranked(Compiled.boolean_query(parts))
        case FullText():
            return _words(condition)
        case Exists(path):
            return _unranked(Compiled.exists_query(column_path(path)))
        case Term(path, value):
            key = value_key(value)
            if key is None:
                return Compiled.empty_query()
            return _unranked(Compiled.term_query(SCHEMA, "keys", path_key(path) + key, index_option="basic"))
        case Prefix(path, prefix):
            begin = path_key(path) + TEXTS + prefix[:ORDERED_CHARACTERS].encode().hex()
            return _between(index, f"[{begin}", f"{begin}{BEHIND}}}")
        case Range():
            return _range(condition, index)


def every() -> Compiled:
    """Every document that is not a tombstone."""
    return Compiled.const_score_query(Compiled.exists_query("id"), 0.0)


def _unranked(query: Compiled) -> Compiled:
    return Compiled.const_score_query(query, 0.0)


def _all(parts: Sequence[Compiled]) -> Compiled:
    return Compiled.boolean_query([(Occur.Must, each) for each in parts]) if parts else every()


def _any(parts: Sequence[Compiled]) -> Compiled:
    return Compiled.boolean_query([(Occur.Should, each) for each in parts]) if parts else _NOTHING


_NOTHING = Compiled.empty_query()


def _words(clause: FullText) -> Compiled:
    found = asked_words(clause.words)
    if not found:
        return _NOTHING
    field = "words" if clause.path is None else column_path(clause.path)
    last = found.pop() if clause.is_prefix else None
    parts = [
        Compiled.fuzzy_term_query(SCHEMA, field, each, distance=clause.edits)
        if clause.edits
        else Compiled.term_query(SCHEMA, field, each, index_option="freq")
        for each in dict.fromkeys(found)
    ]
    if last is not None:
        parts.append(Compiled.fuzzy_term_query(SCHEMA, field, last, distance=0, prefix=True))
    return _all(parts)


def _range(clause: Range, index: Index) -> Compiled:
    classes = {class_of(bound) for bound in (clause.lower, clause.upper) if bound is not None}
    if len(classes) > 1 or ValueClass.BOOLEAN in classes:
        return _NOTHING
    begin = path_key(clause.path)
    return _any([_between(index, *bounds) for bounds in _bounds(clause, classes, begin)])


def _bounds(clause: Range, classes: set[ValueClass], begin: str) -> Iterator[tuple[str, str]]:
    """Lower and upper ends of keys, in the form of tantivy's query language."""
    if classes != {ValueClass.NUMBER}:
        yield _text_lower(clause, begin + TEXTS), _text_upper(clause, begin + TEXTS)
    if classes != {ValueClass.TEXT}:
        lower = b"" if clause.lower is None else number_order(clause.lower)
        upper = b"" if clause.upper is None else number_order(clause.upper)
        if lower is not None and upper is not None:
            start = begin + NUMBERS
            yield _number_lower(clause, start, lower), _number_upper(clause, start, upper)


def _between(index: Index, lower: str, upper: str) -> Compiled:
    return _unranked(index.parse_query(f"keys:{lower} TO {upper}"))


def _text_lower(clause: Range, begin: str) -> str:
    if not isinstance(clause.lower, str):
        return f"[{begin}"
    bound = begin + clause.lower[:ORDERED_CHARACTERS].encode().hex()
    if clause.include_lower:
        return f"[{bound}"
    # All texts that begin with the characters that count are equal to the bound.
    return f"{{{bound}" if len(clause.lower) < ORDERED_CHARACTERS else f"[{bound}{BEHIND}"


def _text_upper(clause: Range, begin: str) -> str:
    if not isinstance(clause.upper, str):
        return f"{begin}{BEHIND}}}"
    bound = begin + clause.upper[:ORDERED_CHARACTERS].encode().hex()
    if not clause.include_upper:
        return f"{bound}}}"
    return f"{bound}]" if len(clause.upper) < ORDERED_CHARACTERS else f"{bound}{BEHIND}}}"


def _number_lower(clause: Range, begin: str, key: bytes) -> str:
    if clause.include_lower or not key:
        return f"[{begin}{key.hex()}"
    # All numbers that are too large for a double are equal to an infinite bound.
    return f"[{begin}{(key + AFTER_BEYOND).hex()}" if key in INFINITE else f"{{{begin}{key.hex()}"


def _number_upper(clause: Range, begin: str, key: bytes) -> str:
    if not key:
        return f"{begin}{BEHIND}}}"
    if not clause.include_upper:
        return f"{begin}{key.hex()}}}"
    return f"{begin}{(key + AFTER_BEYOND).hex()}}}" if key in INFINITE else f"{begin}{key.hex()}]"
