"""Making an index again beside the one in use, and putting it in its place.

One contract suite (`tests/contracts/test_index_versions.py`) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """A version that is being made. `mark` distinguishes it from every other, also from one that had its name before."""

    name: str
    mark: str


class IndexVersions(Protocol):
    """The versions of one index. Every method blocks and raises `ProfileIndexError` when the index is away, after
    which it may be called again.

    From `begin` on, `ProfileIndex.put` and `erase` of every process write to the version that is being made as well. So
    what a store held when `begin` returned, put by `put` here, makes it whole.
    """

    def begin(self, anew: bool = False) -> Begun:
        """The version that is being made: one that an earlier run left, unless `anew`, else a new one."""
        ...

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        """As `ProfileIndex.put`, only into the version that is being made; found when it is in use."""
        ...

    def write_tombstones(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        """Keep what was erased out of the version that is being made: tombstones by name."""
        ...

    def switch(self, keep: bool = False) -> str:
        """Put the version that is being made in the place of the one in use, whose name it gives, in one step. The
        replaced one is deleted. With `keep` it stays until `delete`, or until `ProfileIndex.compact`, which leaves
        nothing of what was replaced; nothing but erasures is written to it."""
        ...

    def known(self) -> list[IndexVersion]:
        """All versions, in the order in which they were made."""
        ...

    def delete(self, name: str) -> None:
        """Remove a version for good. Raises `VersionInUseError` for the one in use, `VersionNotFoundError` when there
        is none of this name."""
        ...

    def close(self) -> None: ...
