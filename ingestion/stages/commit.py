"""The commit stage: join by fragment what the map stage gave, and commit it. Plain Python, no Spark.

The store writes a fragment and its outbox entry in one transaction; from there the projection continues. A retry of what is
committed changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from idgraph.model.backoff import Backoff
from idgraph.model.batch_size import BatchSize
from idgraph.model.counts import BatchCounts
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import StoreError
from idgraph.model.store import ProfileStore
from ingestion.stages.map_output import EncodedChange
from ingestion.stages.orphaned_keys import KeyGuard
from merge.commit import CommitFailure, CommitResult, Committer, unguarded
from merge.fragments import FragmentState, join_all
from merge.timelines import joined_changes

GATHERED_BYTES = 128 << 20
"""The amount of a task's fragments that is held before it is committed."""

_Gathered = dict[str, list[tuple[bytes, int]]]
"""By fragment id, the bytes of states and their erasure epochs."""


class CommitOutput(BatchCounts, kw_only=True):
    """Counters of one task, and the changes that cannot be committed: they become dead letters."""

    failed: list[CommitFailure] = msgspec.field(default_factory=list)

    def take(self, result: CommitResult) -> None:
        """Add what became of one read and write of the store."""
        self.count(result)
        self.isolated += len(result.failed)
        self.failed += result.failed.values()


@dataclass(slots=True)
class CommitStage:
    """Commits the fragments of one task. `size` bounds each read and write of the store."""

    store: ProfileStore
    size: BatchSize = field(default_factory=lambda: BatchSize(1000))
    guard: KeyGuard | None = None
    """Without it nothing is looked at of the keys that sealed."""
    backoff: Backoff = field(default_factory=Backoff)
    gives_up: bool = False
    """Whether a fragment that keeps changing has failed; else ConflictError has the batch retried."""
    refused: set[str] = field(init=False, default_factory=set)
    """Fragments of which a tombstone refused a change, also in runs that failed: see `OrphanedKeys`."""
    committer: Committer = field(init=False)

    def __post_init__(self) -> None:
        guard = self.guard.hold if self.guard else unguarded
        self.committer = Committer(
            self.store, self.backoff, guard=guard, gives_up=self.gives_up, refused=self.refused.add
        )

    def run(self, fragments: Iterable[EncodedChange]) -> CommitOutput:
        """Raises StoreError (retryable) when the store is away."""
        output = CommitOutput()
        gathered: _Gathered = {}
        size = 0
        for fragment_id, state, erasure_epoch in fragments:
            gathered.setdefault(fragment_id, []).append((state, erasure_epoch))
            size += len(state)
            # As many as memory has room for, so that a fragment's changes meet before they are written.
            if size >= GATHERED_BYTES:
                self._commit(gathered, output)
                gathered, size = {}, 0
        self._commit(gathered, output)
        return output

    def _commit(self, gathered: _Gathered, output: CommitOutput) -> None:
        # Sorted, so that two tasks and the pages of a B-tree meet in the same order.
        remaining = iter(sorted(gathered))
        while ids := list(islice(remaining, self.size.present)):
            started = time.perf_counter()
            changes, apart = self._changes(ids, gathered, output)
            outages = stored = 0
            for some in (changes, *apart):
                result = self.committer.commit(some)
                output.take(result)
                outages += result.outages
                stored += result.stored_bytes
            taken = time.perf_counter() - started
            self.size.took(len(ids), taken, outages)
            self.size.weighed(len(ids), stored)
            output.commit_seconds += taken

    def _changes(
        self, ids: Sequence[str], gathered: _Gathered, output: CommitOutput
    ) -> tuple[dict[str, FragmentState], list[dict[str, FragmentState]]]:
        """The changes of each fragment in one; and, to be committed one by one after these, parts of a fragment that
        cannot be joined."""
        changes: dict[str, FragmentState] = {}
        apart: list[dict[str, FragmentState]] = []
        for fragment_id in ids:
            # Decoded here and not before: a decoded state takes many times the memory of its bytes.
            states = self._read(fragment_id, gathered.pop(fragment_id), output)
            if len(states) == 1:
                changes[fragment_id] = states[0]
            elif states:
                changes[fragment_id], *others = _joined(states)
                apart += ({fragment_id: each} for each in others)
        return changes, apart

    def _read(
        self, fragment_id: str, parts: Sequence[tuple[bytes, int]], output: CommitOutput
    ) -> list[FragmentState]:
        states, unread = _read(parts)
        if unread:
            if not self.gives_up:
                # Mapped again they may be whole.
                raise StoreError(f"changes of a fragment were damaged on their way ({unread[0].detail})")
            output.isolated += len(unread)
            output.failed += [failure._replace(fragment_id=fragment_id) for failure in unread]
        return states


def _read(parts: Sequence[tuple[bytes, int]]) -> tuple[list[FragmentState], list[CommitFailure]]:
    """The changes of a fragment, given as the bytes of their states with their erasure epochs, and a failure for each
    that cannot be read. A failure has the bytes; its fragment is not named yet."""
    states: list[FragmentState] = []
    unread: list[CommitFailure] = []
    for data, erasure_epoch in parts:
        try:
            state = FragmentState.of_change(data)
        except MemoryError:
            raise
        except Exception as error:
            detail = f"the changes cannot be read: {type(error).__name__}"
            unread.append(CommitFailure("", DeadLetterReason.MERGE_FAILED, detail, FragmentState(data)))
            continue
        state.erasure_epoch = erasure_epoch
        states.append(state)
    return states, unread


def _joined(parts: Sequence[FragmentState]) -> list[FragmentState]:
    """The parts of a fragment's changes, joined where they can be. Parts of different erasure epochs stay apart: a
    tombstone may refuse one and not the other."""
    by_epoch: dict[int, list[FragmentState]] = {}
    for part in parts:
        by_epoch.setdefault(part.erasure_epoch, []).append(part)
    return [state for same in by_epoch.values() for state in _joined_of_epoch(same)]


def _joined_of_epoch(parts: list[FragmentState]) -> list[FragmentState]:
    try:
        whole = join_all(parts)
        whole.encode()
    except MemoryError:
        raise
    except Exception:
        return parts
    whole.erasure_epoch = parts[0].erasure_epoch
    whole.timeline = joined_changes(each.timeline for each in parts)
    return [whole]
