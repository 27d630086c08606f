"""Queries as SQL over the token table."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from model.errors import QueryError
from model.queries import FullText, Prefix, Query, Range, Term
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, class_of, words
from sinks.sqlite_index_tokens import (
    AFTER_LONG,
    INFINITE,
    WORD_END,
    PathTokens,
    number_order,
    ordered_key,
    value_token,
)

_DIGEST = 6


class Compiled(NamedTuple):
    """`matched` is a subquery that gives document numbers, None for every document."""

    matched: str | None
    values: tuple[str, ...]


NOTHING = Compiled("SELECT 0 WHERE 0", ())
"""A query that no document answers."""


class _Interval(NamedTuple):
    """Tokens from `lower` to `upper`; the operators stand in SQL before them."""

    lower: tuple[str, str]
    upper: tuple[str, str]


def compiled(query: Query, paths: Mapping[str, PathTokens]) -> Compiled:
    """`paths` has each path that the index has seen."""
    match_terms: list[str] = []
    subqueries: list[str] = []
    values: list[str] = []
    for clause in query.clauses:
        if isinstance(clause, Range):
            intervals = list(_intervals(clause, paths))
            if not intervals:
                return NOTHING
            subqueries.append(
                " UNION ".join(
                    f"SELECT DISTINCT doc FROM vocabulary WHERE term {lower[0]} ? AND term {upper[0]} ?"  # noqa: S608 - ours
                    for lower, upper in intervals
                )
            )
            values.extend(bound for lower, upper in intervals for bound in (lower[1], upper[1]))
        else:
            terms = _match_terms(clause, paths)
            if not terms:
                return NOTHING
            match_terms.extend(terms)
    if match_terms:
        subqueries.append("SELECT rowid FROM words WHERE words MATCH ?")
        values.append(" AND ".join(dict.fromkeys(match_terms)))
    if not subqueries:
        return Compiled(None, ())
    return Compiled(" INTERSECT ".join(f"SELECT * FROM ({each})" for each in subqueries), tuple(values))  # noqa: S608 - ours


def _match_terms(clause: Term | Prefix | FullText, paths: Mapping[str, PathTokens]) -> list[str]:
    """What must all match, in FTS5's language; none when nothing can. Tokens hold no quotation marks."""
    if isinstance(clause, FullText) and clause.path is None:
        return [f'"{word}{WORD_END}" *' for word in words(clause.words)]
    begin = paths.get(clause.path or "")
    if begin is None:
        return []
    if isinstance(clause, FullText):
        return [f'"{word}{begin.word}"' for word in words(clause.words)]
    if isinstance(clause, Prefix):
        return [f'"{begin.text}{ordered_key(clause.prefix)}" *']
    token = value_token(begin, clause.value)
    return [f'"{token}"'] if token is not None else []


def _intervals(clause: Range, paths: Mapping[str, PathTokens]) -> Iterator[_Interval]:
    begin = paths.get(clause.path)
    classes = {class_of(bound) for bound in (clause.lower, clause.upper) if bound is not None}
    if begin is None or len(classes) > 1:
        return
    if not classes or classes == {ValueClass.TEXT}:
        yield _Interval(_text_lower(begin, clause), _text_upper(begin, clause))
    if not classes or classes == {ValueClass.NUMBER}:
        lower = "" if clause.lower is None else number_order(clause.lower)
        upper = "" if clause.upper is None else number_order(clause.upper)
        if lower is not None and upper is not None:
            yield _Interval(_number_lower(begin, clause, lower), _number_upper(begin, clause, upper))


def _number_lower(begin: PathTokens, clause: Range, key: str) -> tuple[str, str]:
    if clause.include_lower:
        return ">=", begin.number + key
    return ">", begin.number + key + (AFTER_LONG if key in INFINITE else "")


def _number_upper(begin: PathTokens, clause: Range, key: str) -> tuple[str, str]:
    if not key:
        return "<", begin.boolean
    if not clause.include_upper:
        return "<", begin.number + key
    return "<=", begin.number + key + (AFTER_LONG if key in INFINITE else "")


def _text_lower(begin: PathTokens, clause: Range) -> tuple[str, str]:
    if not isinstance(clause.lower, str):
        return ">=", begin.text
    key = begin.text + ordered_key(clause.lower)
    if clause.include_lower:
        return ">=", key
    return ">", key + AFTER_LONG if len(clause.lower) >= ORDERED_CHARACTERS else key


def _text_upper(begin: PathTokens, clause: Range) -> tuple[str, str]:
    if not isinstance(clause.upper, str):
        return "<", begin.number
    key = begin.text + ordered_key(clause.upper)
    if not clause.include_upper:
        return "<", key
    return "<=", key + AFTER_LONG if len(clause.upper) >= ORDERED_CHARACTERS else key


def cursor_after(document_id: str) -> str:
    """An opaque cursor that goes on behind this id."""
    data = document_id.encode()
    return base64.urlsafe_b64encode(_digest(data) + data).decode()


def read_cursor(cursor: str) -> str:
    """The id behind which to go on. Raises QueryError for what `cursor_after` did not make."""
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        digest, after = data[:_DIGEST], data[_DIGEST:]
        if digest == _digest(after):
            return after.decode()
    except (binascii.Error, UnicodeError):
        pass
    raise QueryError("the cursor is not one that this index gave out")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(b"cursor" + data).digest()[:_DIGEST]
