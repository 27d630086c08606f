"""Projecting by the store's own stream, in place of the flows: for a store that many flows write to.

Shards are read side by side, a child shard when its parent has been read to its end. The place in a shard is written to disk
when all before it is projected: after an interruption some of it is projected again, which changes nothing.
What the index refuses stays in the outbox, as does what the stream has dropped before it was read: the outbox is
swept from time to time.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from idgraph.files import write_atomically
from idgraph.model.errors import ProfileIndexError, StoreError, TrimmedStreamError
from idgraph.model.store import ChangeStream, Shard, ShardPage
from idgraph.projection.projection import Projection

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""Between looks when nothing came: a shard takes five requests a second."""
RETRY_SECONDS = 5.0
"""After the index or the store was away."""
SHARDS_SECONDS = 10.0
"""Between questions for the list of shards, which all consumers of an account share ten of a second, unless one has
come to its end."""
SWEEP_SECONDS = 30.0
"""Between sweeps of the outbox."""
LONGEST_SWEEP_SECONDS = 5.0
"""How long a sweep lasts while there is something to read: flows fill the outbox meanwhile."""


@dataclass(slots=True)
class FollowProgress:
    """What came since the start. `refused` profiles wait in the outbox, `trimmed` counts how often the stream had
    dropped what was not read yet, `waiting` is how many the index refused in the last sweep."""

    reported: int = 0
    indexed: int = 0
    refused: int = 0
    trimmed: int = 0
    shards: int = 0
    is_idle: bool = False
    waiting: int = 0


class StreamPlaces:
    """How far each shard was read, in a file. Sequence numbers say nothing of a profile."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream = ""
        self.after: dict[str, str | None] = {}
        self.ended: set[str] = set()

    def read(self, stream: str) -> None:
        """Take up what was kept of this stream; of another nothing is of use."""
        self._stream, self.after, self.ended = stream, {}, set()
        try:
            kept = json.loads(self._file.read_bytes())
            if kept["stream"] == stream:
                self.after, self.ended = dict(kept["after"]), set(kept["ended"])
        except (OSError, ValueError, LookupError, TypeError):
            return

    def keep(self) -> None:
        """Durable when it returns. Raises StoreError."""
        content = {"stream": self._stream, "after": self.after, "ended": sorted(self.ended)}
        try:
            write_atomically(self._file, json.dumps(content).encode())
        except OSError as error:
            raise StoreError(f"{self._file}: {error.strerror}") from None


def readable(shards: Mapping[str, Shard], ended: set[str]) -> list[str]:
    """The shards that can be read now: not at their end, and no parent of theirs is there that is not."""
    return [
        name
        for name, shard in shards.items()
        if name not in ended and (shard.parent is None or shard.parent in ended or shard.parent not in shards)
    ]


@dataclass(slots=True)
class StreamFollowing:
    """Follows one stream. One per thread; several on one stream do no harm."""

    projection: Projection
    stream: ChangeStream
    places: StreamPlaces
    poll_seconds: float = POLL_SECONDS
    _swept: float = field(default=-math.inf, init=False)
    _shards: Mapping[str, Shard] = field(default_factory=dict, init=False)
    _listed: float = field(default=-math.inf, init=False)

    def run(self, stop: threading.Event) -> Iterator[FollowProgress]:
        """Gives the progress after each look at all shards; the same object again and again. Ends when `stop` is
        set. An index or a store that is away is waited for; raises StoreError for a stream that cannot be read."""
        self.places.read(self.stream.name)
        progress = FollowProgress()
        while not stop.is_set():
            try:
                came = self._look(progress, stop)
                progress.is_idle = not came
                if time.monotonic() >= self._swept + SWEEP_SECONDS:
                    self._sweep(progress, LONGEST_SWEEP_SECONDS if came else math.inf)
            except (ProfileIndexError, StoreError) as error:
                log.warning("the index waits: %s", error)
                stop.wait(RETRY_SECONDS)
                continue
            yield progress
            if not came:
                stop.wait(self.poll_seconds)

    def is_drained(self, progress: FollowProgress) -> bool:
        """Whether nothing waits for the index but what it refuses. Sweeps the outbox when something does."""
        if self.projection.waiting(progress.waiting + 1) > progress.waiting:
            self._sweep(progress)
            return False
        return True

    def _look(self, progress: FollowProgress, stop: threading.Event) -> bool:
        """One page of each shard; whether anything came."""
        came = False
        names = self._readable(progress)
        progress.shards = len(names)
        for name in names:
            if stop.is_set():
                break
            try:
                page = self.stream.read(name, self.places.after.get(name))
            except TrimmedStreamError as error:
                self._trimmed(progress, str(error))
                self.places.after.pop(name, None)
                self.places.keep()
                self._listed = -math.inf
                continue
            came |= page.place is not None or page.is_ended
            self._take(page.ids, progress)
            self._note(name, page)
        return came

    def _readable(self, progress: FollowProgress) -> list[str]:
        """The shards to read, of a list that is made again when it is old, or when they have all ended."""
        names = readable(self._shards, self.places.ended)
        if not names or time.monotonic() >= self._listed + SHARDS_SECONDS:
            self._shards = self.stream.shards()
            self._listed = time.monotonic()
            self._forget(self._shards, progress)
            names = readable(self._shards, self.places.ended)
        return names

    def _note(self, name: str, page: ShardPage) -> None:
        if page.place is not None:
            self.places.after[name] = page.place
        if page.is_ended:
            self.places.ended.add(name)
            self.places.after.pop(name, None)
            # Its children.
            self._listed = -math.inf
        if page.place is not None or page.is_ended:
            self.places.keep()

    def _forget(self, shards: Mapping[str, Shard], progress: FollowProgress) -> None:
        """Shards that the stream has dropped, which it does a day after their end."""
        if unread := self.places.after.keys() - shards.keys():
            self._trimmed(progress, "the stream has dropped shards that were not read to their end")
        for name in unread:
            del self.places.after[name]
        self.places.ended &= shards.keys()

    def _trimmed(self, progress: FollowProgress, why: str) -> None:
        progress.trimmed += 1
        self._swept = -math.inf
        log.warning(
            "%s: its changes are taken from the outbox; `idgraph reconcile` says whether the index is whole, and "
            "`idgraph reindex` makes it again",
            why,
        )

    def _take(self, ids: Collection[str], progress: FollowProgress) -> None:
        if ids:
            done = self.projection.project(ids)
            progress.reported += len(ids)
            progress.indexed += done.projected
            progress.refused += len(done.refused)

    def _sweep(self, progress: FollowProgress, seconds: float = math.inf) -> None:
        progress.waiting = self.projection.sweep(seconds).left()
        self._swept = time.monotonic()
