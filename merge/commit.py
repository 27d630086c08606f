"""Commit: read, merge, write if the version is still the one read, else read again.

The commit is idempotent: joining the same changes again changes nothing and writes nothing, so a batch
that was cut short is simply given again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from merge import codec
from merge.encoded import state_of
from merge.fragments import FragmentState
from merge.store import NEW, FragmentWrite, ProfileStore
from merge.tombstones import UNJUDGED, Tombstone
from model.errors import ConflictError, DamagedStateError

GuardedWrite = Callable[[Mapping[str, FragmentState], Callable[[set[str]], set[str]]], set[str]]
"""Runs a write of changes of fragments that were erased once, telling it which it must leave out; gives these
and those the write refused."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: before retry n, sleep a random time up to `base * 2**n`,
    at most `cap` seconds. Gives up after `retries`."""

    retries: int = 12
    base: float = 0.005
    cap: float = 1.0

    def pause(self, attempt: int) -> float:
        """Seconds to sleep before retry `attempt`, from 0."""
        return random.uniform(0, min(self.cap, self.base * 2**attempt))  # noqa: S311 - no secret


@dataclass(slots=True)
class CommitResult:
    """`written` are the fragments whose state changed, with their new versions; `damaged` the changes of
    fragments whose stored state cannot be read: they are not written; `erased` those whose change a tombstone
    refused: they were erased after its events were judged."""

    written: list[tuple[str, int, FragmentState]] = field(default_factory=list)
    unchanged: int = 0
    conflicts: int = 0
    erased: list[str] = field(default_factory=list)
    damaged: dict[str, FragmentState] = field(default_factory=dict)


class Committer:
    """Writes merged fragments with optimistic locking. Blocks; safe beside any number of other writers."""

    def __init__(
        self,
        store: ProfileStore,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
        guarded: GuardedWrite | None = None,
    ) -> None:
        """`guarded` runs the writes of fragments that have a tombstone; without it they are like all others."""
        self._store = store
        self._guarded = guarded
        self._backoff = backoff or Backoff()
        self._sleep = sleep

    def commit(self, changes: Mapping[str, FragmentState]) -> CommitResult:
        """Join each fragment's changes into the store, in one read and one write if nobody interferes.

        Raises ConflictError when some fragment kept changing through all retries; the others are written.
        Raises StoreError when the store is away. Both are safe to retry whole.
        """
        result = CommitResult()
        pending = dict(changes)
        for attempt in range(self._backoff.retries + 1):
            if attempt:
                result.conflicts += len(pending)
                self._sleep(self._backoff.pause(attempt - 1))
                # Refused may also mean: erased meanwhile.
                self._bury(pending, self._store.tombstones(pending), result)
            conflicted = self._try(pending, result)
            if not conflicted:
                return result
            pending = {fragment_id: pending[fragment_id] for fragment_id in conflicted}
        raise ConflictError(
            f"{len(pending)} fragment(s) kept changing through {self._backoff.retries} retries, or were sealed by "
            "a key that is erased; nothing is lost, give the batch again"
        )

    def _try(self, pending: dict[str, FragmentState], result: CommitResult) -> set[str]:
        stored = self._store.read(list(pending))
        # Those that are there are judged by the store when they are written.
        buried = self._store.tombstones(each for each in pending if each not in stored)
        self._bury(pending, buried, result)
        writes: list[FragmentWrite] = []
        merged: dict[str, FragmentState] = {}
        damaged: dict[str, FragmentState] = {}
        for fragment_id, change in pending.items():
            present = stored.get(fragment_id)
            if present:
                version = present.version
            else:
                version = buried[fragment_id].version if fragment_id in buried else NEW
            if present is None:
                # Normalising it in place changes nothing of what it asks for, should it be asked again.
                state, known = change, frozenset[str]()
            else:
                try:
                    state = state_of(present.state)
                    known = state.names()
                    is_news = state.join(change)
                except DamagedStateError:
                    damaged[fragment_id] = change
                    continue
                if not is_news:
                    result.unchanged += 1
                    continue
            state.normalise()
            data = codec.encode(state)
            if present and data == present.state:
                result.unchanged += 1
                continue
            merged[fragment_id] = state
            new = state.names() - known
            writes.append(FragmentWrite(fragment_id, version, data, new, change.judged))
        if damaged:
            self._bury(damaged, self._store.tombstones(damaged), result)
            result.damaged |= damaged
        erased_once = {
            name: change for name, change in pending.items() if change.judged != UNJUDGED or name in buried
        }
        conflicted = self._write(writes, erased_once)
        result.written.extend(
            (write.id, write.expected_version + 1, merged[write.id])
            for write in writes
            if write.id not in conflicted
        )
        return conflicted

    def _write(self, writes: list[FragmentWrite], erased_once: Mapping[str, FragmentState]) -> set[str]:
        if self._guarded is None or not erased_once:
            return self._store.write(writes) if writes else set()

        def write(left_out: set[str]) -> set[str]:
            some = [each for each in writes if each.id in erased_once and each.id not in left_out]
            return self._store.write(some) if some else set()

        others = [each for each in writes if each.id not in erased_once]
        written_with_key = {each.id: erased_once[each.id] for each in writes if each.id in erased_once}
        refused = self._guarded(written_with_key, write) if written_with_key else set()
        return refused | (self._store.write(others) if others else set())

    def _bury(
        self, changes: dict[str, FragmentState], buried: Mapping[str, Tombstone], result: CommitResult
    ) -> None:
        """Take out the changes whose events were judged by less than what their tombstone forbids now."""
        for fragment_id, tombstone in buried.items():
            if tombstone.until > changes[fragment_id].judged:
                del changes[fragment_id]
                result.erased.append(fragment_id)
