"""The projection by the store's own stream, in place of the flows: for a store that many flows write to.

The stream only gives ids early. Every entry waits in the outbox until it is projected, so the next sweep
finds a missed change. The place in the stream is kept nowhere.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from idgraph.model.errors import ProfileIndexError, StoreError, TrimmedStreamError
from idgraph.model.store import ChangeStream
from idgraph.projection.parts import Projected
from idgraph.projection.projection import Projection

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""Between looks when nothing came: a shard takes five requests a second."""
RETRY_SECONDS = 5.0
"""After the index or the store was away."""
SWEEP_SECONDS = 30.0
"""Between sweeps of the outbox."""
LONGEST_SWEEP_SECONDS = 5.0
"""The longest sweep while there is something to read: flows fill the outbox meanwhile."""


@dataclass(slots=True)
class FollowProgress:
    """Counts since the start. `refused` profiles wait in the outbox. `trimmed` counts the times that the
    stream had dropped changes that were not read yet. `waiting` is the number of documents that the index
    refused in the last sweep."""

    reported: int = 0
    indexed: int = 0
    refused: int = 0
    trimmed: int = 0
    shards: int = 0
    is_idle: bool = False
    waiting: int = 0

    def add(self, done: Projected) -> None:
        """Count fragments that were projected."""
        self.indexed += done.projected
        self.refused += len(done.refused)


@dataclass(slots=True)
class StreamFollowing:
    """Follows one stream. One per thread; several on one stream do no harm."""

    projection: Projection
    stream: ChangeStream
    poll_seconds: float = POLL_SECONDS
    _swept: float = field(default=-math.inf, init=False)

    def run(self, stop: threading.Event) -> Iterator[FollowProgress]:
        """Yields the progress after each look at the stream; the same object again and again. Ends when
        `stop` is set. Waits for an index or a store that is away."""
        progress = FollowProgress()
        while not stop.is_set():
            try:
                ids = self._changed(progress)
                progress.reported += len(ids)
                progress.add(self.projection.project(ids))
                progress.is_idle = not ids
                if time.monotonic() >= self._swept + SWEEP_SECONDS:
                    self._sweep(progress, LONGEST_SWEEP_SECONDS if ids else math.inf)
            except (ProfileIndexError, StoreError) as error:
                log.warning("the index waits: %s", error)
                self._swept = -math.inf
                stop.wait(RETRY_SECONDS)
                continue
            yield progress
            if progress.is_idle:
                stop.wait(self.poll_seconds)

    def is_drained(self, progress: FollowProgress) -> bool:
        """Whether nothing waits for the index but documents that it refuses. Sweeps the outbox when something
        does."""
        if self.projection.waiting(progress.waiting + 1) > progress.waiting:
            self._sweep(progress)
            return False
        return True

    def _changed(self, progress: FollowProgress) -> list[str]:
        try:
            ids = self.stream.changed()
        except TrimmedStreamError as error:
            progress.trimmed += 1
            self._swept = -math.inf
            log.warning(
                "%s: its changes are taken from the outbox; `idgraph reconcile` says whether the index is whole, and "
                "`idgraph reindex` makes it again",
                error,
            )
            return []
        progress.shards = self.stream.shards
        return ids

    def _sweep(self, progress: FollowProgress, seconds: float = math.inf) -> None:
        swept = self.projection.sweep(seconds)
        progress.add(swept)
        progress.waiting = swept.left()
        self._swept = time.monotonic()
