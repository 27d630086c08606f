"""Queries as intervals of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from idgraph.model.queries import FullText, Prefix, Query, Range, Term
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, class_of, words
from sinks.number_keys import AFTER_BEYOND, INFINITE, number_order
from sinks.sqlite.index.tokens import AFTER_LONG, WORD_END, PathTokens, ordered_key, value_token

_NOTHING: tuple[Interval, ...] = ()
_NEXT = b"\0"
"""What makes of a token the very next one."""
_LAST = b"\xff"
"""Behind all that UTF-8 begins with."""


class Interval(NamedTuple):
    """Tokens from `lower` on and before `upper`."""

    lower: bytes
    upper: bytes


def compiled(query: Query, paths: Mapping[str, PathTokens]) -> list[list[Interval]]:
    """What a document must have: of each of these lists a token that is in one of its intervals. `paths` has each
    path that the index has seen. An empty list is what no document has."""
    found: dict[tuple[Interval, ...], None] = {}
    for clause in query.clauses:
        if isinstance(clause, FullText):
            asked: list[tuple[Interval, ...]] = [(each,) for each in _words(clause, paths)]
            found |= dict.fromkeys(asked or [_NOTHING])
        else:
            found[tuple(_intervals(clause, paths))] = None
    return [list(each) for each in found]


def _words(clause: FullText, paths: Mapping[str, PathTokens]) -> list[Interval]:
    if clause.path is None:
        return [_beginning(word.encode() + WORD_END) for word in words(clause.words)]
    begin = paths.get(clause.path)
    return [_only(word.encode() + begin.word) for word in words(clause.words)] if begin is not None else []


def _intervals(clause: Term | Prefix | Range, paths: Mapping[str, PathTokens]) -> Iterator[Interval]:
    begin = paths.get(clause.path)
    if begin is None:
        return
    if isinstance(clause, Range):
        yield from _range(clause, begin)
    elif isinstance(clause, Prefix):
        yield _beginning(begin.text + ordered_key(clause.prefix))
    else:
        token = value_token(begin, clause.value)
        if token is not None:
            yield _only(token)


def _only(token: bytes) -> Interval:
    return Interval(token, token + _NEXT)


def _beginning(prefix: bytes) -> Interval:
    return Interval(prefix, prefix + _LAST)


def _range(clause: Range, begin: PathTokens) -> Iterator[Interval]:
    classes = {class_of(bound) for bound in (clause.lower, clause.upper) if bound is not None}
    if len(classes) > 1:
        return
    if not classes or classes == {ValueClass.TEXT}:
        yield Interval(_text_lower(begin, clause), _text_upper(begin, clause))
    if not classes or classes == {ValueClass.NUMBER}:
        lower = b"" if clause.lower is None else number_order(clause.lower)
        upper = b"" if clause.upper is None else number_order(clause.upper)
        if lower is not None and upper is not None:
            yield Interval(_number_lower(begin, clause, lower), _number_upper(begin, clause, upper))


def _number_lower(begin: PathTokens, clause: Range, key: bytes) -> bytes:
    lower = begin.number + key
    return lower if clause.include_lower or not key else lower + _behind_number(key)


def _number_upper(begin: PathTokens, clause: Range, key: bytes) -> bytes:
    if not key:
        return begin.boolean
    upper = begin.number + key
    return upper + _behind_number(key) if clause.include_upper else upper


def _behind_number(key: bytes) -> bytes:
    # All numbers that are too large for a double are equal to an infinite bound.
    return AFTER_BEYOND if key in INFINITE else _NEXT


def _text_lower(begin: PathTokens, clause: Range) -> bytes:
    if not isinstance(clause.lower, str):
        return begin.text
    key = begin.text + ordered_key(clause.lower)
    return key if clause.include_lower else key + _behind(clause.lower)


def _text_upper(begin: PathTokens, clause: Range) -> bytes:
    if not isinstance(clause.upper, str):
        return begin.number
    key = begin.text + ordered_key(clause.upper)
    return key + _behind(clause.upper) if clause.include_upper else key


def _behind(bound: str) -> bytes:
    # All texts that begin with the characters that count are equal to the bound.
    return AFTER_LONG if len(bound) >= ORDERED_CHARACTERS else _NEXT
