"""Making an index again beside the one in use, and putting it in its place.

One contract suite (`tests/contracts/test_index_versions.py`) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from idgraph.model.index import IndexDocument
from idgraph.model.tombstones import Tombstone


class VersionState(StrEnum):
    """What a version of an index is."""

    IN_USE = "in use"
    MADE = "being made"
    REPLACED = "replaced"


class IndexVersion(NamedTuple):
    """One version of an index, and how many documents it has."""

    name: str
    state: VersionState
    documents: int


class Begun(NamedTuple):
    """A version that is being made. `mark` reports it from every other, also from one that had its name before."""

    name: str
    mark: str


class IndexVersions(Protocol):
    """The versions of one index. Every method blocks and raises `ProfileIndexError` when the index is away, after
    which it may be called again.

    Whoever writes to the index knows nothing of it: what is put into the version in use or erased there from `begin`
    on comes into the one that is being made, at the latest when `changed` has no more to give. An erasure reaches
    every version.
    """

    def begin(self, anew: bool = False) -> Begun:
        """The version that is being made: one that an earlier run left, unless `anew`, else a new one."""
        ...

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        """As `ProfileIndex.put`, into the version that is being made; found only when it is in use."""
        ...

    def write_tombstones(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        """Keep what was erased out of the version that is being made: tombstones by name."""
        ...

    def changed(self) -> list[str]:
        """The next ids of documents that were put into the version in use since `begin` and that are yet to be put
        into the one that is being made; none when there are no more for now. What was erased there is erased here
        when it returns."""
        ...

    def switch(self, take: Callable[[Sequence[str]], None]) -> str:
        """Put the version that is being made in the place of the one in use, whose name it gives. `take` is given
        the last ids of `changed`; writers wait meanwhile. Whatever it raises, writers do not wait any longer, and it can be
        made again: the version in use stays in use, unless it was replaced already and what came last is not there."""
        ...

    def known(self) -> list[IndexVersion]:
        """All versions, in the order in which they were made."""
        ...

    def delete(self, name: str) -> None:
        """Remove a version for good. Raises `VersionInUseError` for the one in use, `ProfileIndexError` when there
        is none of this name."""
        ...

    def close(self) -> None: ...
