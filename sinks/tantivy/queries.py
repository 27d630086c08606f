"""Queries in tantivy's form.

A user's text is never read as syntax: only ranges need tantivy's own query language, and their bounds end before any
character of it. Where the index cannot decide, the few documents that may match are read: texts that begin as a bound
that was cut, numbers beyond all doubles, and words of opaque ids. Only words count for the relevance of an answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from tantivy import Index, Occur, Searcher
from tantivy import Query as Compiled

from idgraph.model.index import IndexDocument
from idgraph.model.queries import All, AnyOf, Condition, Exists, FullText, Not, Prefix, Query, Range, Term
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, asked_words, class_of, ordered
from sinks.matching import holds, values_of
from sinks.tantivy.documents import (
    BEHIND_NUMBERS,
    BEHIND_TEXTS,
    NUMBER,
    SCHEMA,
    TEXT,
    column,
    is_opaque,
    read,
    stored,
)

_SYNTAX = re.compile(r"[\s{}\"\[\]()]")
"""Characters that cannot stand in a bound of tantivy's query language."""
_BEHIND = "\U0010ffff" * 3
"""Sorts behind all texts that begin alike."""
_HEXADECIMAL = re.compile(r"[0-9a-f]*")


class Opened(NamedTuple):
    """An index, and its documents at one moment."""

    parsed: Index
    searcher: Searcher


def compiled(query: Query, index: Index) -> tuple[Searcher, Compiled]:
    """The documents of this index at this moment; and the query for those that match, without tombstones."""
    there = Opened(index, index.searcher())
    return there.searcher, _all([_compiled(each, there) for each in query.clauses])


def _compiled(condition: Condition, there: Opened) -> Compiled:
    match condition:
        case All(conditions):
            return _all([_compiled(each, there) for each in conditions])
        case AnyOf(conditions):
            words: list[FullText] = []
            others: list[Condition] = []
            for each in conditions:
                if isinstance(each, FullText) and each.path is not None:
                    words.append(each)
                else:
                    others.append(each)
            found = [_compiled(each, there) for each in others]
            return _any([*found, *_words_of_attributes(words, there)])
        case Not(negated):
            parts = [(Occur.Must, every()), (Occur.MustNot, _compiled(negated, there))]
            return _unranked(Compiled.boolean_query(parts))
        case FullText(_, None):
            return _words(condition, "words")
        case FullText():
            return _any([*_words_of_attributes([condition], there)])
        case Exists(path):
            return _unranked(Compiled.exists_query(_data(path)))
        case Term():
            return _term(condition, there)
        case Prefix(path, prefix):
            return _beginning(path, prefix[:ORDERED_CHARACTERS])
        case Range():
            return _range(condition, there)


def _data(path: str) -> str:
    return f"data.{column(path)}"


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


def _words(clause: FullText, field: str) -> Compiled:
    found = asked_words(clause.words)
    if not found:
        return _NOTHING
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


def _words_of_attributes(clauses: Sequence[FullText], there: Opened) -> Iterator[Compiled]:
    """What meets any of these clauses, each with a path."""
    known = [_words(each, f"text.{column(each.path or '')}") for each in clauses]
    yield from known
    # At once for all paths: a caller from whom something is hidden looks for a word in each other attribute.
    alike: dict[FullText, dict[str, FullText]] = {}
    for each in clauses:
        if each.path is not None and all(
            _may_be_opaque(word, each.edits) for word in asked_words(each.words)
        ):
            alike.setdefault(each._replace(path=None), {})[each.path] = each
    for anywhere, by_path in alike.items():
        may = [(Occur.Must, _words(anywhere, "words")), (Occur.MustNot, _any(known))]
        if len(by_path) == 1:
            may += [(Occur.Must, Compiled.exists_query(_data(path))) for path in by_path]
        yield _read(partial(_is_in_an_opaque_id, by_path), Compiled.boolean_query(may), there)


def _is_in_an_opaque_id(by_path: Mapping[str, FullText], document: IndexDocument) -> bool:
    for path in document.fields.keys() & by_path.keys():
        texts = [each for each in values_of(document, path) if isinstance(each, str)]
        if texts and is_opaque(texts) and holds(by_path[path], document):
            return True
    return False


def _may_be_opaque(word: str, edits: int) -> bool:
    """Whether an opaque id may have the word, or one so near to it."""
    return len(_HEXADECIMAL.sub("", word)) <= edits


def _read(matches: Callable[[IndexDocument], bool], may: Compiled, there: Opened) -> Compiled:
    """Those of the documents that may match, as far as their fields do."""
    searcher = there.searcher
    hits = searcher.search(may, max(1, searcher.num_docs), count=False).hits
    names: list[str] = []
    for _, place in sorted(hits, key=lambda hit: (hit[1].segment_ord, hit[1].doc)):
        document = searcher.doc(place).to_dict()
        if matches(IndexDocument("", 0, read(document["source"][0]))):
            names += document["name"]
    return _unranked(Compiled.term_set_query(SCHEMA, "name", names)) if names else _NOTHING


def _term(clause: Term, there: Opened) -> Compiled:
    value = stored(clause.value)
    if value is None:
        return _NOTHING
    found = _unranked(Compiled.term_query(SCHEMA, _data(clause.path), value, index_option="basic"))
    is_infinite = not isinstance(clause.value, str) and ordered(clause.value) in (math.inf, -math.inf)
    return _read(partial(holds, clause), found, there) if is_infinite else found


def _beginning(path: str, prefix: str) -> Compiled:
    query = Compiled.fuzzy_term_query(SCHEMA, _data(path), TEXT + prefix, distance=0, prefix=True)
    return _unranked(query)


def _range(clause: Range, there: Opened) -> Compiled:
    classes = {class_of(bound) for bound in (clause.lower, clause.upper) if bound is not None}
    if len(classes) > 1 or ValueClass.BOOLEAN in classes:
        return _NOTHING
    parts: list[Compiled] = []
    if classes != {ValueClass.NUMBER}:
        parts += _texts(clause, there)
    if classes != {ValueClass.TEXT}:
        parts += _numbers(clause, there)
    return _any(parts)


def _between(path: str, bounds: str, there: Opened) -> Compiled:
    """By bounds in the form of tantivy's query language."""
    return _unranked(there.parsed.parse_query(f"{_data(path)}:{bounds}"))


def _texts(clause: Range, there: Opened) -> Iterator[Compiled]:
    lower, upper = f"[{TEXT}", f"{BEHIND_TEXTS}}}"
    if isinstance(clause.lower, str):
        bound = clause.lower[:ORDERED_CHARACTERS]
        if cut := _SYNTAX.search(bound):
            yield _read(partial(holds, clause), _beginning(clause.path, bound[: cut.start()]), there)
            lower = f"[{TEXT}{bound[: cut.start()]}{_BEHIND}"
        elif clause.include_lower:
            lower = f"[{TEXT}{bound}"
        else:
            # All texts that begin with the characters that count are equal to the bound.
            is_whole = len(clause.lower) < ORDERED_CHARACTERS
            lower = f"{{{TEXT}{bound}" if is_whole else f"[{TEXT}{bound}{_BEHIND}"
    if isinstance(clause.upper, str):
        bound = clause.upper[:ORDERED_CHARACTERS]
        if cut := _SYNTAX.search(bound):
            yield _read(partial(holds, clause), _beginning(clause.path, bound[: cut.start()]), there)
            upper = f"{TEXT}{bound[: cut.start()]}}}"
        elif not clause.include_upper:
            upper = f"{TEXT}{bound}}}"
        else:
            is_whole = len(clause.upper) < ORDERED_CHARACTERS
            upper = f"{TEXT}{bound}]" if is_whole else f"{TEXT}{bound}{_BEHIND}}}"
    yield _between(clause.path, f"{lower} TO {upper}", there)


def _numbers(clause: Range, there: Opened) -> Iterator[Compiled]:
    lower = NUMBER if clause.lower is None else stored(clause.lower)
    upper = BEHIND_NUMBERS if clause.upper is None else stored(clause.upper)
    if lower is not None and upper is not None:
        begin = "{["[clause.include_lower]
        end = "}]"[clause.include_upper and clause.upper is not None]
        yield _between(clause.path, f"{begin}{lower} TO {upper}{end}", there)
