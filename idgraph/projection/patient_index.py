"""An index that a flow does not wait for: one that is slow, or held by another writer, only leaves the outbox longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import FacetCount, IndexDocument, Indexed, ProfileIndex, SearchPage
from idgraph.model.queries import Order, Query

PATIENCE_SECONDS = 1.0
PATIENCE_SECONDS_A_DOCUMENT = 0.002
"""How long a put is waited for, together: many times what the embedded index takes."""


class PatientIndex:
    """A `ProfileIndex` whose `put` raises ProfileIndexError when it takes too long, and goes on in the background.

    Until that put is done, whatever becomes of it, each new one is refused at once: its documents stay in the outbox,
    from which they are indexed later, so a flow waits once for an index that is away, and memory holds what was
    waited for. Where the one in the background succeeds after all, its documents are indexed again, without effect.

    It puts what the index rules of its own time gave. Behind a reindex by newer rules it may bring back, in the same
    version, what these leave out: `idgraph reconcile --repair` then takes it out, as it does after a task that began
    before the rules changed.
    """

    def __init__(self, index: ProfileIndex, seconds: float = PATIENCE_SECONDS) -> None:
        """`seconds` are waited for any put, besides those that its documents are given."""
        self._index = index
        self._seconds = seconds
        self._overdue: list[_Put] = []

    def writing(self) -> AbstractContextManager[None]:
        """As of the index: but its own puts are made by other threads, which wait for the block to end."""
        return self._index.writing()

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        if not all(put.is_done() for put in self._overdue):
            raise ProfileIndexError("the index is still at what it was given before")
        self._overdue = []
        put = _Put(lambda: self._index.put(documents))
        if not put.wait(self._seconds + PATIENCE_SECONDS_A_DOCUMENT * len(documents)):
            # Another list, since another thread may be looking through the present one.
            self._overdue = [*self._overdue, put]
            raise ProfileIndexError("the index takes long; it goes on in the background")
        return put.result()

    def versions(self, ids: Sequence[str]) -> dict[str, int]:
        return self._index.versions(ids)

    def compare(self, documents: Sequence[IndexDocument]) -> dict[str, Indexed]:
        return self._index.compare(documents)

    def erase(self, versions: Mapping[str, int]) -> int:
        return self._index.erase(versions)

    def compact(self) -> None:
        self._index.compact()

    def search(
        self, query: Query, limit: int = 20, cursor: str | None = None, order: Order | None = None
    ) -> SearchPage:
        return self._index.search(query, limit, cursor, order)

    def facets(self, query: Query, path: str, limit: int = 10) -> list[FacetCount]:
        return self._index.facets(query, path, limit)

    def count(self, query: Query) -> int:
        return self._index.count(query)

    def identity(self) -> str:
        return self._index.identity()

    def close(self) -> None:
        self._index.close()


class _Put:
    """One call in a thread of its own, which does not keep its process alive."""

    def __init__(self, call: Callable[[], dict[str, str]]) -> None:
        self._call = call
        self._answer: dict[str, str] = {}
        self._failure: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="index-put", daemon=True).start()

    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it is done within so many seconds."""
        return self._done.wait(seconds)

    def result(self) -> dict[str, str]:
        """Its answer, or what it raised."""
        if self._failure is not None:
            raise self._failure
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except Exception as error:
            self._failure = error
        finally:
            # What it was given may be much, and this lives until the next one.
            self._call = dict
            self._done.set()
