"""Building a new version of an index beside the one in use, and switching to it.

One contract suite (`tests/contracts/test_index_versions.py`) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from idgraph.model.index import IndexDocument
from idgraph.model.tombstones import Tombstone


class VersionState(StrEnum):
    """State of a version of an index."""

    IN_USE = "in use"
    MADE = "being made"
    REPLACED = "replaced"
    """It is being deleted; where a crash came first, `ProfileIndex.compact` does it."""


class IndexVersion(NamedTuple):
    """One version of an index, with its number of documents."""

    name: str
    state: VersionState
    documents: int


class Begun(NamedTuple):
    """An unfinished version. `mark` distinguishes it from every other, also from an earlier one of its name."""

    name: str
    mark: str


class IndexVersions(Protocol):
    """The versions of one index. Every method blocks and raises `ProfileIndexError` when the index is away, after
    which it may be called again.

    From `begin` on, `ProfileIndex.put` and `erase` of every process write to the unfinished version too. So it is complete
    once `put` here has put all fragments that the store had when `begin` returned.
    """

    def begin(self, afresh: bool = False) -> Begun:
        """The unfinished version of an earlier run; with `afresh`, or without one, a new version."""
        ...

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        """As `ProfileIndex.put`, but only into the unfinished version; searches find it after `switch`."""
        ...

    def write_tombstones(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        """Keep erased documents out of the unfinished version: tombstones by name."""
        ...

    def switch(self) -> str:
        """Switch to the unfinished version in one step; returns the name of the replaced version, which is deleted."""
        ...

    def known(self) -> list[IndexVersion]:
        """All versions, the oldest first."""
        ...

    def close(self) -> None: ...
