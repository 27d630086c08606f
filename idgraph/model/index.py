"""The profile index protocol: search over what policy allows to be indexed.

One contract suite (`tests/contracts/test_profile_index.py`) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from idgraph.model.attributes import Reconciliation
from idgraph.model.behaviour import NO_BEHAVIOUR, BehaviourRules
from idgraph.model.durations import NO_TIMES, TimeForm
from idgraph.model.fragments import LATEST_ONLY
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.model.queries import Order, Query, Scalar


class Segment(NamedTuple):
    """A named search: what its author asked for, and with the consent to `purpose` that it needs the condition of its members.
    `changes` says whether the feed has each change of a member. With `attribute` it has no members: its crossings are the
    changes of this attribute's value."""

    name: str
    version: int
    asked: Query
    condition: Query
    changes: bool = False
    purpose: str | None = None
    attribute: str | None = None


class IndexRules(NamedTuple):
    """`is_indexable` answers for a path whether policy lets its plaintext into the index; `policies` are the
    reconciliation policies of paths that have another than `latest`; `identity` says which fragments are one profile, in which
    version; 0 are the default rules. `segments` and `behaviour` are those in force; `times` says by path in which form an
    attribute has a time.

    The same `is_indexable` always gives the same answers, so that they may be kept: where one changes it is another
    object."""

    is_indexable: Callable[[str], bool]
    policies: Mapping[str, Reconciliation] = LATEST_ONLY
    identity: IdentityRules = DEFAULT_RULES
    identity_version: int = 0
    segments: tuple[Segment, ...] = ()
    behaviour: BehaviourRules = NO_BEHAVIOUR
    times: Mapping[str, TimeForm] = NO_TIMES


class IndexDocument(NamedTuple):
    """The indexed part of a profile.

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
    """The indexed state of a compared document."""

    version: int
    is_same: bool
    """Whether both contents are equal."""


class ProfileIndex(Protocol):
    """Safe for several processes and threads at once. Every method blocks.

    Every method raises `ProfileIndexError` when the index is away; that is always safe to retry.
    """

    def writing(self, stays_open: bool = False) -> AbstractContextManager[Callable[[], bool]]:
        """The writers' lock of an index in files: the block can read the store and put, and no other write comes
        between.

        The outermost block writes all its documents in one commit when it ends, and none if it fails; until then the
        block may not see them. With `stays_open` each block within commits, as an outermost one: many small commits
        then wait for nothing that the index does beside them. The yielded function says whether another writer waits
        for the block's end.

        The lock is reentrant per thread; `put`, `erase` and `compact` take it themselves. It waits for the current
        writer. An index that orders writes by version has no lock, and writes at once."""
        ...

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        """Index each document. It replaces an older version, or the same one (after a change of policy); a stale document
        succeeds without effect. Returns the reason by id for refused documents; the others are indexed. Visible to
        searches of any process when it, and the `writing` block around it, has ended."""
        ...

    def versions(self, ids: Sequence[str]) -> dict[str, int]:
        """The version of each of these ids with a document."""
        ...

    def compare(self, documents: Sequence[IndexDocument]) -> dict[str, Indexed]:
        """The indexed state of each of these documents with an indexed id. A document that `put` would refuse is never
        the same."""
        ...

    def erase(self, versions: Mapping[str, int]) -> int:
        """Remove documents of at most these versions by id, and refuse these versions from then on. Within a `writing` block,
        which has read the store, an index may keep nothing of ids without a document: nobody can have older ones to put.
        Returns the number of removed documents. Searches of any process no longer find them when it, and the `writing`
        block around it, has ended."""
        ...

    def compact(self) -> None:
        """Leave nothing of removed or replaced documents in a file. Slow: it can read the whole index, and wait for a
        minute. Raises `ProfileIndexError` if something can be left: retry."""
        ...

    def search(
        self, query: Query, limit: int = 20, cursor: str | None = None, order: Order | None = None
    ) -> SearchPage:
        """Matching profiles, sorted by `order`; without it, by relevance (BM25) if the query has words, otherwise by id.
        Full text without a word finds nothing. A cursor continues after its page with the same query and order. During
        writes, pages by order or id neither repeat nor miss other documents; pages by relevance can. Raises QueryError
        for a foreign cursor."""
        ...

    def facets(self, query: Query, path: str, limit: int = 10) -> list[FacetCount]:
        """The most frequent values of an attribute among matching profiles, then by value as `Order` sorts. Numbers are
        right to 15 digits."""
        ...

    def count(self, query: Query) -> int: ...

    def matches(self, document: IndexDocument, query: Query) -> bool:
        """Whether a search for the query would find this document, were it indexed. Reads nothing."""
        ...

    def identity(self) -> str:
        """Distinguishes this index from every other, also from its successor: a new file after a loss, or a version after
        a switch."""
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
