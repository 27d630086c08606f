"""What a store reports its writes by itself, in the order in which they were made, for a day or so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from idgraph.model.store import StoredFragment


class Shard(NamedTuple):
    """A part of a stream. A fragment is in one shard at a time: when a shard ends, its children go on with it."""

    parent: str | None
    """The shard that must be read to its end before; it may have been dropped."""


class ShardPage(NamedTuple):
    """The next that a shard reports: fragments as they were written, those only that wait for the index."""

    fragments: list[StoredFragment]
    place: str | None
    """Of the last that was reported; None where nothing was."""
    is_ended: bool
    """Whether nothing comes behind it any more."""


class ChangeStream(Protocol):
    """Every method blocks, and raises `StoreError` when the stream is away, after which it may be called again."""

    @property
    def name(self) -> str:
        """What reports this stream from one that the store had before; places are of no use in another."""
        ...

    def shards(self) -> Mapping[str, Shard]:
        """All shards that there are, by their ids."""
        ...

    def read(self, shard: str, after: str | None) -> ShardPage:
        """What a shard reports behind a place, from its oldest where that is None. Raises `TrimmedStreamError` when
        what stood behind it was dropped."""
        ...

    def close(self) -> None: ...
