"""A profile index in memory, for tests and previews: says what every clause means in the plainest way."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from idgraph.model.errors import ProfileIndexError, QueryError
from idgraph.model.index import IndexDocument, Indexed, SearchPage
from idgraph.model.queries import Clause, FullText, Prefix, Query, Range, Term
from sinks.index_values import (
    ORDERED_CHARACTERS,
    ValueClass,
    check_text,
    class_of,
    exact,
    is_unicode,
    ordered,
    words,
)


class MemoryProfileIndex:
    """A `ProfileIndex` that is gone with its process; looks at every document. Safe for several threads."""

    def __init__(self) -> None:
        self._documents: dict[str, IndexDocument] = {}
        self._erased: dict[str, int] = {}
        self._closed = False
        self._identity = secrets.token_hex(8)
        self._guard = threading.RLock()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._lock():
            yield

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

    def search(self, query: Query, limit: int = 20, cursor: str | None = None) -> SearchPage:
        if cursor is not None and not cursor.startswith("after "):
            raise QueryError("the cursor is not one that this index gave out")
        after = "" if cursor is None else cursor.removeprefix("after ")
        found = [each for each in self._matching(query) if each > after]
        page = found[:limit]
        return SearchPage(page, f"after {page[-1]}" if len(found) > limit and page else None)

    def count(self, query: Query) -> int:
        return len(self._matching(query))

    def identity(self) -> str:
        with self._lock():
            return self._identity

    def close(self) -> None:
        with self._guard:
            self._closed = True

    def _matching(self, query: Query) -> list[str]:
        check_text(query)
        with self._lock():
            return sorted(
                document.id
                for document in self._documents.values()
                if all(_holds(clause, document) for clause in query.clauses)
            )

    def _lock(self) -> threading.RLock:
        if self._closed:
            raise ProfileIndexError("the profile index in memory is closed")
        return self._guard


def _reason_to_refuse(document: IndexDocument) -> str | None:
    texts = [document.id, *document.fields]
    for path in document.fields:
        for value in _values(document, path):
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
        (path, [(class_of(each), _comparable(each, whole=True)) for each in _values(document, path)])
        for path in sorted(document.fields)
    ]


def _values(document: IndexDocument, path: str) -> list[Any]:
    value = document.fields.get(path, [])
    return value if isinstance(value, list) else [value]


def _holds(clause: Clause, document: IndexDocument) -> bool:
    match clause:
        case FullText(text, path):
            paths = document.fields if path is None else [path]
            texts = [value for each in paths for value in _values(document, each) if isinstance(value, str)]
            asked = set(words(text))
            return bool(asked) and asked <= {word for each in texts for word in words(each)}
        case Term(path, value):
            return any(
                class_of(each) is class_of(value)
                and _comparable(each, whole=True) == _comparable(value, True)
                for each in _values(document, path)
                if _comparable(value) is not None
            )
        case Prefix(path, prefix):
            start = prefix[:ORDERED_CHARACTERS]
            return any(isinstance(each, str) and each.startswith(start) for each in _values(document, path))
        case Range():
            return any(_within(clause, each) for each in _values(document, clause.path))


def _within(clause: Range, value: Any) -> bool:
    classes = {class_of(bound) for bound in (clause.lower, clause.upper) if bound is not None}
    own, comparable = class_of(value), _comparable(value)
    if own is ValueClass.BOOLEAN or comparable is None or not classes <= {own}:
        return False
    if clause.lower is not None:
        lower = _comparable(clause.lower)
        if lower is None or not (comparable > lower or (clause.include_lower and comparable == lower)):
            return False
    if clause.upper is not None:
        upper = _comparable(clause.upper)
        if upper is None or not (comparable < upper or (clause.include_upper and comparable == upper)):
            return False
    return True


def _comparable(value: Any, whole: bool = False) -> Any:
    if isinstance(value, str):
        return value if whole else value[:ORDERED_CHARACTERS]
    if isinstance(value, bool):
        return value
    number = ordered(value)
    return exact(value) if whole and number is not None else number
