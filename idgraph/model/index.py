"""The profile index protocol: search over what policy allows to be indexed.

One contract suite (`tests/contracts/test_profile_index.py`) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from idgraph.model.attributes import Reconciliation
from idgraph.model.fragments import LATEST_ONLY
from idgraph.model.queries import Order, Query, Scalar


class IndexRules(NamedTuple):
    """`is_indexable` answers for a path whether policy lets its plaintext into the index; `policies` are the
    reconciliation policies of paths that have another than `latest`.

    The same `is_indexable` always gives the same answers, so that they may be kept: where one changes it is another
    object."""

    is_indexable: Callable[[str], bool]
    policies: Mapping[str, Reconciliation] = LATEST_ONLY


class IndexDocument(NamedTuple):
    """What the index may know of a profile.

    `version` is the profile's; a lower one never replaces a higher one. `fields` maps attribute path to a
    value or list of values: only indexable attributes, and of sealed ones only the blind-index token.
    Types may clash between documents and within a list; no clash is an error.
    """

    id: str
    version: int
    fields: Mapping[str, Scalar | list[Scalar]]


class SearchPage(NamedTuple):
    """Ids of matching profiles in the order asked for; `cursor` is None on the last page."""

    ids: list[str]
    cursor: str | None


class FacetCount(NamedTuple):
    """A value of an attribute, and how many matching profiles have it."""

    value: Scalar
    profiles: int


class Indexed(NamedTuple):
    """What the index has of a document that it is compared with."""

    version: int
    is_same: bool
    """Whether its content is exactly the other's."""


class ProfileIndex(Protocol):
    """Safe for several processes and threads at once. Every method blocks.

    Every method raises `ProfileIndexError` when the index is away; that is always safe to retry.
    """

    def writing(self) -> AbstractContextManager[None]:
        """Until the block ends nobody else writes to an index that its writers share by files: what the block reads
        from the store and then puts is not overtaken. The thread that is in it may enter it again, and `put`, `erase`
        and `compact` enter it by themselves. Where the index decides by versions which write is the later one, other
        writers go on. Waits for the writer that is in it."""
        ...

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        """Index each document, replacing an older version, or the same one, whole; a stale one is a success
        without effect. (The same: a change of policy indexes a profile again without a new version.)
        One bad document does not hold the others: gives the reason by id for those not taken.
        Visible to searches from any process when it returns."""
        ...

    def versions(self, ids: Sequence[str]) -> dict[str, int]:
        """The versions of those of these ids that have a document."""
        ...

    def compare(self, documents: Sequence[IndexDocument]) -> dict[str, Indexed]:
        """What the index has of those of these documents whose ids have one. A document that `put` would refuse is
        never the same."""
        ...

    def erase(self, versions: Mapping[str, int]) -> int:
        """Remove documents of at most these versions by id, and never take one of them again, whoever was
        about to put it. Gives how many there were. Searches from any process no longer find them when it
        returns."""
        ...

    def compact(self) -> None:
        """Leave nothing in a file of documents that were removed or replaced. Slow: may read all there is, and
        wait for a minute. Raises `ProfileIndexError` when something may be left: to be done again."""
        ...

    def search(
        self, query: Query, limit: int = 20, cursor: str | None = None, order: Order | None = None
    ) -> SearchPage:
        """Matching profiles: by `order`; else, where the query asks for words, by relevance (BM25), the best first; else
        by id. Full text without a word finds nothing. A cursor goes on after its page with the same query and order. While
        documents are written, a walk by order or id neither repeats nor misses others; one by relevance may, since
        relevance changes. Raises QueryError for a cursor that this index did not give out."""
        ...

    def facets(self, query: Query, path: str, limit: int = 10) -> list[FacetCount]:
        """The most frequent values of an attribute among matching profiles, then by value as `Order` sorts. Numbers are
        right to 15 digits."""
        ...

    def count(self, query: Query) -> int: ...

    def identity(self) -> str:
        """Distinguishes it from every other, also from one that took its place later: a file that was made again after it
        was lost, a version that was switched to."""
        ...

    def close(self) -> None: ...


def search_pages(index: ProfileIndex, size: int = 1000, cursor: str | None = None) -> Iterator[SearchPage]:
    """All documents in the order of their ids, a page at a time, behind `cursor` if there is one."""
    while True:
        page = index.search(Query(), size, cursor)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
