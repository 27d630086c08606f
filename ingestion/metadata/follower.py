"""Following the metadata service: the newest snapshot at hand, the last good one on disk."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Protocol

from idgraph.model.errors import FlowStoppedError, MetadataError, SnapshotSignatureError, UnauthorizedError
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.repeating import Outage, Repeating
from idgraph.snapshot_file import SnapshotFile, kept_snapshot

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 10.0


class SnapshotSource(Protocol):
    """The metadata service as a pipeline sees it."""

    def snapshot(self, etag: str | None, wait: float) -> PinnedSnapshot | None:
        """The snapshot; None if its ETag is still `etag` after up to `wait` seconds. Raises
        MetadataError when the service is away, UnauthorizedError when it refuses the token."""
        ...


class SnapshotFollower:
    """Polls in a thread of its own and never blocks a micro-batch.

    While the service is away the last snapshot stays in force; it is kept in `cache_file` for the next
    start. Use as a context manager.
    """

    def __init__(
        self, source: SnapshotSource, cache_file: Path, max_age_seconds: float | None = None
    ) -> None:
        """No micro-batch begins once the service has been silent for `max_age_seconds`; None: however long it is."""
        self._source = source
        self._max_age = math.inf if max_age_seconds is None else max_age_seconds
        self._cache = SnapshotFile(cache_file)
        self._current: PinnedSnapshot | None = None
        self._answered = -math.inf
        self._outage = Outage("the metadata service")
        self._repeating = Repeating("snapshot-follower", self._step, self._report)

    def __enter__(self) -> SnapshotFollower:
        """Get a first snapshot and start to follow.

        Raises UnauthorizedError for a refused token, and MetadataError when the service is away and no
        earlier snapshot is on disk.
        """
        try:
            answer = self._source.snapshot(None, 0)
            assert answer is not None  # noqa: S101 - without an ETag there is always an answer
            self._answered = time.monotonic()
            self._take(answer)
        except UnauthorizedError:
            raise
        except MetadataError as error:
            self._current = kept_snapshot(self._cache.path)
            if self._current is None:
                raise MetadataError(
                    f"{error}; and there is no earlier snapshot in {self._cache.path}"
                ) from error
            log.warning("%s; continuing with snapshot %d from disk", error, self._current.snapshot.version)
        self._repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        # A long poll is not waited for.
        self._repeating.close(0)

    def current(self) -> PinnedSnapshot:
        """The newest snapshot. Never blocks."""
        assert self._current is not None  # noqa: S101 - set by __enter__
        return self._current

    def in_force(self) -> PinnedSnapshot:
        """The newest snapshot, for a micro-batch that begins. Raises FlowStoppedError when it is too old: a policy may
        have changed since."""
        if self.age() > self._max_age:
            raise FlowStoppedError(
                "the metadata service has not confirmed for more than metadata.max_snapshot_age_seconds "
                f"({self._max_age:g}) that snapshot {self.current().snapshot.version} is the newest; nothing is lost: "
                "run again when it is back, or raise the setting"
            )
        return self.current()

    def age(self) -> float:
        """Seconds since the service last said which snapshot is the newest; infinite if it has not in this run."""
        return time.monotonic() - self._answered

    def _step(self) -> None:
        answer = self._source.snapshot(self.current().etag, LONG_POLL_SECONDS)
        self._outage.is_over()
        self._answered = time.monotonic()
        if answer is not None and not self._repeating.stop.is_set():
            self._take(answer)

    def _report(self, error: Exception) -> None:
        meanwhile = f"snapshot {self.current().snapshot.version} stays in force"
        self._outage.show_error(error, meanwhile, serious=(UnauthorizedError, SnapshotSignatureError))

    def _take(self, answer: PinnedSnapshot) -> None:
        self._current = answer
        try:
            self._cache.keep(answer)
        except OSError as error:
            # In force all the same: only the next start would miss it.
            log.warning("%s: the snapshot cannot be kept: %s", self._cache.path, error.strerror)
