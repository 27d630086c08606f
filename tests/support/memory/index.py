"""A profile index in memory: says what every clause means in the plainest way."""

from __future__ import annotations

import math
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from idgraph.model.errors import ProfileIndexError, QueryError
from idgraph.model.index import FacetCount, IndexDocument, Indexed, SearchPage
from idgraph.model.queries import (
    FullText,
    Order,
    Query,
    Scalar,
    positive,
)
from sinks.index_values import (
    ValueClass,
    check_text,
    class_of,
    cursor_of,
    is_unicode,
    order_key,
    read_cursor,
    words,
)
from sinks.matching import comparable_of, is_nan, matches, values_of, words_of

_SATURATION, _LENGTH_SHARE = 1.2, 0.75
"""The parameters of BM25."""


class MemoryProfileIndex:
    """A `ProfileIndex` that is gone with its process; looks at every document. Safe for several threads."""

    def __init__(self) -> None:
        self._documents: dict[str, IndexDocument] = {}
        self._erased: dict[str, int] = {}
        self._closed = False
        self._identity = secrets.token_hex(8)
        self._guard = threading.RLock()

    @contextmanager
    def writing(self, stays_open: bool = False) -> Iterator[Callable[[], bool]]:
        with self._lock():
            yield lambda: False

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        refused: dict[str, str] = {}
        with self._lock():
            for document in documents:
                reason = _reason_to_refuse(document)
                if reason is not None:
                    refused[document.id] = reason
                    continue
                if document.version <= self._erased.get(document.id, -1):
                    continue
                present = self._documents.get(document.id)
                if present is None or present.version <= document.version:
                    self._documents[document.id] = document
        return refused

    def versions(self, ids: Sequence[str]) -> dict[str, int]:
        with self._lock():
            return {each: self._documents[each].version for each in ids if each in self._documents}

    def compare(self, documents: Sequence[IndexDocument]) -> dict[str, Indexed]:
        with self._lock():
            return {
                each.id: Indexed(present.version, _content(present) == _content(each))
                for each in documents
                if (present := self._documents.get(each.id))
            }

    def erase(self, versions: Mapping[str, int]) -> int:
        with self._lock():
            self._erased |= {
                each: max(version, self._erased.get(each, -1)) for each, version in versions.items()
            }
            gone = [each for each in versions if each in self._documents]
            gone = [each for each in gone if self._documents[each].version <= versions[each]]
            for each in gone:
                del self._documents[each]
            return len(gone)

    def compact(self) -> None:
        """Nothing is kept."""
        self._lock()

    def search(
        self, query: Query, limit: int = 20, cursor: str | None = None, order: Order | None = None
    ) -> SearchPage:
        found = self._matching(query, order)
        if order is not None:
            found.sort(key=lambda each: _place(each, order), reverse=order.is_descending)
            # Those without the attribute are last in both directions.
            found.sort(key=lambda each: _place(each, order) == _NOWHERE)
        elif query.is_ranked:
            scores = self._scores(query, found)
            found.sort(key=lambda each: -scores[each.id])
        ids = [each.id for each in found]
        after = _offset(ids, cursor)
        page = ids[after : after + limit]
        return SearchPage(page, cursor_of(page[-1]) if len(ids) > after + limit and page else None)

    def facets(self, query: Query, path: str, limit: int = 10) -> list[FacetCount]:
        counts: Counter[tuple[int, Any]] = Counter()
        for document in self._matching(query, Order(path)):
            counts.update({order_key(each) for each in values_of(document, path) if not is_nan(each)})
        best = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:limit]
        return [FacetCount(_value(key), number) for key, number in best]

    def count(self, query: Query) -> int:
        return len(self._matching(query))

    def matches(self, document: IndexDocument, query: Query) -> bool:
        return matches(document, query)

    def identity(self) -> str:
        with self._lock():
            return self._identity

    def close(self) -> None:
        with self._guard:
            self._closed = True

    def _matching(self, query: Query, order: Order | None = None) -> list[IndexDocument]:
        """Sorted by id."""
        check_text(query, order)
        with self._lock():
            found = [each for each in self._documents.values() if matches(each, query)]
            return sorted(found, key=lambda each: each.id)

    def _scores(self, query: Query, found: Sequence[IndexDocument]) -> dict[str, float]:
        """BM25 of the words that are asked for, over all documents."""
        asked = [each for each in positive(query) if isinstance(each, FullText)]
        scores = dict.fromkeys((each.id for each in found), 0.0)
        with self._lock():
            documents = list(self._documents.values())
        for clause in asked:
            texts = {each.id: words_of(each, clause.path) for each in documents}
            mean = sum(map(len, texts.values())) / max(1, len(texts))
            for word in set(words(clause.words)):
                having = sum(word in text for text in texts.values())
                rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
                for each in found:
                    text = texts[each.id]
                    frequency = text.count(word)
                    length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * len(text) / (mean or 1)
                    scores[each.id] += (
                        rarity * frequency * (_SATURATION + 1) / (frequency + _SATURATION * length)
                    )
        return scores

    def _lock(self) -> threading.RLock:
        if self._closed:
            raise ProfileIndexError("the profile index in memory is closed")
        return self._guard


def _offset(ids: Sequence[str], cursor: str | None) -> int:
    if cursor is None:
        return 0
    last = read_cursor(cursor)
    if not isinstance(last, str):
        raise QueryError("the cursor is not one that this index gave out")
    return ids.index(last) + 1 if last in ids else len(ids)


def _reason_to_refuse(document: IndexDocument) -> str | None:
    texts = [document.id, *document.fields]
    for path in document.fields:
        for value in values_of(document, path):
            try:
                if class_of(value) is ValueClass.TEXT:
                    texts.append(value)
            except TypeError as error:
                return f"{path}: {error}"
    return None if all(map(is_unicode, texts)) else "text that is not valid Unicode"


def _content(document: IndexDocument) -> list[tuple[str, list[tuple[ValueClass, Any]]]] | None:
    """What searches see of a document; None where it would be refused."""
    if _reason_to_refuse(document) is not None:
        return None
    return [
        (path, [(class_of(each), comparable_of(each, whole=True)) for each in values_of(document, path)])
        for path in sorted(document.fields)
    ]


_NOWHERE = (-1, 0)


def _place(document: IndexDocument, order: Order) -> tuple[int, Any]:
    """Where a document stands in an order."""
    keys = [order_key(each) for each in values_of(document, order.path) if not is_nan(each)]
    if not keys:
        return _NOWHERE
    return max(keys) if order.is_descending else min(keys)


def _value(key: tuple[int, Any]) -> Scalar:
    """The value that has this key of order."""
    value: Scalar = key[1]
    return int(value) if isinstance(value, float) and value.is_integer() else value
