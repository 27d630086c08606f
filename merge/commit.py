"""Commit: read, merge, write if the version is still the one read, else read again.

The commit is idempotent: joining the same changes again changes nothing and writes nothing, so a batch
that was interrupted is simply retried. A fragment that can never be written fails alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from idgraph.model.backoff import Backoff
from idgraph.model.counts import BatchCounts
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConflictError, DamagedStateError, StoreError, UnstorableError
from idgraph.model.store import NEW, NO_PAGES, FragmentStore, FragmentWrite, StoredFragment
from idgraph.model.timelines import PageKey, Pages, Timelines
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from merge.fragments import FragmentState
from merge.timelines import NOTHING_WRITTEN, PageChanges, joined_pages, pages_of

LARGEST_STATE = 16 << 20
"""Bytes of a fragment's state. A fragment is joined, written and projected whole at each change: one without a bound
would take the memory of the process that commits it and others."""

Guard = Callable[[Mapping[str, FragmentState]], AbstractContextManager[set[str]]]
"""Changes of fragments that were erased once, to those of them that must not be written. No key that sealed the others
is erased within the context."""


def unguarded(_: Mapping[str, FragmentState]) -> AbstractContextManager[set[str]]:
    """All may be written, and no key is held."""
    return nullcontext(set())


class CommitStore(FragmentStore, Timelines, Protocol):
    """The part of a store that a commit writes."""


class CommitFailure(NamedTuple):
    """A change that some events ask of a fragment, and why it failed. `detail` holds no value; values that
    policy protects are sealed in `change`."""

    fragment_id: str
    reason: DeadLetterReason
    detail: str
    change: FragmentState


class CommitResult(BatchCounts, kw_only=True):
    """The result of a commit: counters, the new `versions` of the fragments that were written, and `failed` changes that
    cannot be written, both by fragment id. `stored_bytes` are those of the states of all fragments."""

    versions: dict[str, int] = msgspec.field(default_factory=dict)
    failed: dict[str, CommitFailure] = msgspec.field(default_factory=dict)
    outages: int = 0
    stored_bytes: int = 0

    def add(self, other: CommitResult) -> None:
        """Add what became of other fragments."""
        self.count(other)
        self.versions |= other.versions
        self.failed |= other.failed
        self.outages += other.outages
        self.stored_bytes += other.stored_bytes


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the changes, and how often they were tried."""

    changes: dict[str, FragmentState]
    attempt: int = 0

    def halves(self, attempt: int) -> list[_Part]:
        """Both halves, to be tried next; a single change is one part."""
        items = iter(self.changes.items())
        first = dict(islice(items, (len(self.changes) + 1) // 2))
        return [_Part(some, attempt) for some in (first, dict(items)) if some]


class Committer:
    """Writes merged fragments with optimistic locking. Blocks; safe beside any number of other writers."""

    def __init__(
        self,
        store: CommitStore,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
        guard: Guard = unguarded,
        gives_up: bool = False,
        refused: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`guard` is held by each write of fragments that were erased once.
        With `gives_up` a fragment that keeps changing has failed like one that cannot be written. `refused` is reported
        the id of each fragment whose change a tombstone refuses, at once: also when the commit then fails."""
        self._store = store
        self._guard = guard
        self._refused = refused
        self._gives_up = gives_up
        self._backoff = backoff or Backoff()
        self._sleep = sleep

    def commit(self, changes: Mapping[str, FragmentState]) -> CommitResult:
        """Join each fragment's changes into the store, in one read and one write if nobody interferes.

        A fragment that the store cannot take is found by halving, and fails alone. While the store is away, ever
        smaller parts are tried after ever longer pauses. Raises ConflictError when some fragment kept changing
        through all retries; the others are written. Raises StoreError when the store is away, MemoryError for want of
        memory. All are safe to retry whole.
        """
        result = CommitResult()
        parts = [_Part(dict(changes))]
        stuck: dict[str, FragmentState] = {}
        while parts:
            part = parts.pop()
            try:
                done, conflicted = self._try(part)
            except UnstorableError as error:
                if len(part.changes) == 1:
                    result.failed |= _failed(part.changes, DeadLetterReason.REFUSED_BY_STORE, str(error))
                else:
                    parts.extend(part.halves(part.attempt))
                continue
            except StoreError:
                if part.attempt == self._backoff.retries:
                    raise
                result.retries += 1
                result.outages += 1
                self._sleep(self._backoff.pause(part.attempt))
                parts.extend(part.halves(part.attempt + 1))
                continue
            result.add(done)
            result.conflicts += len(conflicted)
            if conflicted and part.attempt == self._backoff.retries:
                stuck |= conflicted
            elif conflicted:
                result.retries += 1
                self._sleep(self._backoff.pause(part.attempt))
                parts.append(_Part(conflicted, part.attempt + 1))
        if stuck:
            self._give_up(stuck, result)
        return result

    def _give_up(self, stuck: dict[str, FragmentState], result: CommitResult) -> None:
        reason = (
            f"kept changing through {self._backoff.retries} retries, or were sealed by a key that is erased"
        )
        if not self._gives_up:
            raise ConflictError(f"{len(stuck)} fragment(s) {reason}; nothing is lost, retry the batch")
        result.failed |= _failed(stuck, DeadLetterReason.CONFLICT, f"the fragment {reason}; replay it")

    def _try(self, part: _Part) -> tuple[CommitResult, dict[str, FragmentState]]:
        """Try once; gives what became of the changes, and those that another writer was faster at."""
        result, changes = CommitResult(), dict(part.changes)
        # Tombstones also of those that are there: one that came back has another key than what is still on its way may
        # be sealed by.
        stored, tombstoned = self._store.read_with_tombstones(list(changes))
        self._drop_tombstoned(changes, tombstoned, result)
        writes, failed = _merged(changes, stored, self._pages(changes), tombstoned, result)
        if failed:
            alive = {name: failure.change for name, failure in failed.items()}
            self._drop_tombstoned(alive, self._store.read_with_tombstones(list(failed))[1], result)
            result.failed |= {name: failed[name] for name in alive}
        erased_once = {
            write.id: changes[write.id]
            for write in writes
            if write.id in tombstoned or write.erasure_epoch != NO_EPOCH
        }
        not_written: set[str] = set()
        if erased_once:
            with self._guard(erased_once) as unreadable:
                readable = [
                    write for write in writes if write.id in erased_once and write.id not in unreadable
                ]
                not_written = unreadable | self._put(readable, changes, result)
            writes = [write for write in writes if write.id not in erased_once]
        not_written |= self._put(writes, changes, result)
        result.written = len(result.versions)
        return result, {name: changes[name] for name in not_written}

    def _pages(self, changes: Mapping[str, FragmentState]) -> Mapping[str, Pages]:
        """The stored pages that these changes have entries for, by fragment. Read behind the fragments."""
        keys = [
            (name, key) for name, each in changes.items() if each.timeline for key in pages_of(each.timeline)
        ]
        found: dict[str, dict[PageKey, bytes]] = {}
        for (name, key), page in (self._store.pages(keys) if keys else {}).items():
            found.setdefault(name, {})[key] = page
        return found

    def _put(
        self, writes: list[FragmentWrite], changes: Mapping[str, FragmentState], result: CommitResult
    ) -> set[str]:
        """Write, and note what became of it; gives those that another writer was faster at."""
        if not writes:
            return set()
        unstorable: frozenset[str] = frozenset()
        try:
            refused = self._store.write(writes)
        except UnstorableError as error:
            if not error.ids:
                raise
            unstorable, refused = error.ids, {*error.refused} - error.ids
            found = {name: changes[name] for name in unstorable}
            result.failed |= _failed(found, DeadLetterReason.REFUSED_BY_STORE, str(error))
        left = refused | unstorable
        result.versions |= {write.id: write.expected_version + 1 for write in writes if write.id not in left}
        return refused

    def _drop_tombstoned(
        self, changes: dict[str, FragmentState], tombstoned: Mapping[str, Tombstone], result: CommitResult
    ) -> None:
        """Drop the changes of events that a tombstone of their fragment forbids by now."""
        for fragment_id, tombstone in tombstoned.items():
            if tombstone.refuses(changes[fragment_id].erasure_epoch):
                del changes[fragment_id]
                result.erased += 1
                self._refused(fragment_id)


def _merged(
    changes: Mapping[str, FragmentState],
    stored: Mapping[str, StoredFragment],
    pages: Mapping[str, Pages],
    tombstoned: Mapping[str, Tombstone],
    result: CommitResult,
) -> tuple[list[FragmentWrite], dict[str, CommitFailure]]:
    """The writes of changes that change something, and the failures of those that cannot be merged."""
    writes: list[FragmentWrite] = []
    failed: dict[str, CommitFailure] = {}
    result.stored_bytes = sum(len(each.state) for each in stored.values())
    for fragment_id, change in changes.items():
        present = stored.get(fragment_id)
        joined = _joined(fragment_id, change, present, pages.get(fragment_id, NO_PAGES))
        if joined is None:
            result.unchanged += 1
        elif isinstance(joined, CommitFailure):
            failed[fragment_id] = joined
        else:
            data, new, dropped, timelines = joined
            version = _version(present, tombstoned.get(fragment_id))
            made = (fragment_id, version, data, new, change.erasure_epoch, dropped, *timelines)
            writes.append(_new_write(FragmentWrite, made))
            result.stored_bytes += len(data) if present is None else len(data) - len(present.state)
    return writes, failed


def _version(present: StoredFragment | None, tombstone: Tombstone | None) -> int:
    if present is not None:
        return present.version
    return tombstone.version if tombstone is not None else NEW


_Joined = tuple[bytes, frozenset[str], frozenset[str], PageChanges]
"""The bytes of the state to write, the identifiers that are new, those that are taken back, and the pages to write."""


def _joined(
    fragment_id: str, change: FragmentState, present: StoredFragment | None, pages: Pages
) -> _Joined | CommitFailure | None:
    """None if the change changes nothing."""
    try:
        timelines = joined_pages(change.timeline, pages) if change.timeline else NOTHING_WRITTEN
        joined = _join(fragment_id, change, present, timelines)
        # One that is larger already may become smaller.
        largest = max(LARGEST_STATE, len(present.state) if present else 0)
        if joined is None or len(joined[0]) <= largest:
            return joined
        detail = f"the fragment would be of more than {LARGEST_STATE:,} bytes"
        return CommitFailure(fragment_id, DeadLetterReason.REFUSED_BY_STORE, detail, change)
    except DamagedStateError:
        detail = "the fragment's stored state cannot be read; restore it from a backup, then replay"
        return CommitFailure(fragment_id, DeadLetterReason.DAMAGED_FRAGMENT, detail, change)
    except (StoreError, MemoryError):
        raise
    except Exception as error:
        # Only the type: the message of a stranger's exception may quote a value.
        return CommitFailure(fragment_id, DeadLetterReason.MERGE_FAILED, type(error).__name__, change)


def _join(
    fragment_id: str, change: FragmentState, present: StoredFragment | None, timelines: PageChanges
) -> _Joined | None:
    # A fragment is found by its id, also where no event shows it any more.
    own = frozenset((fragment_id,))
    if present is None:
        # Normalising it in place changes nothing of what it asks for, should it be asked again.
        change.normalise()
        return change.encode(), change.names() | own, _NO_NAMES, timelines
    state = FragmentState.checked(present.state)
    known = state.names()
    if state.join(change):
        state.normalise()
        data = state.encode()
        if data != present.state:
            names = state.names()
            return data, names - known, (known - names) - own, timelines
    return (present.state, _NO_NAMES, _NO_NAMES, timelines) if timelines.pages else None


def _failed(
    changes: Mapping[str, FragmentState], reason: DeadLetterReason, detail: str
) -> dict[str, CommitFailure]:
    return {name: CommitFailure(name, reason, detail, change) for name, change in changes.items()}


_NO_NAMES = frozenset[str]()
# The constructor of a NamedTuple, without its call: there is one for each fragment.
_new_write: Callable[[type[FragmentWrite], tuple[object, ...]], FragmentWrite] = tuple.__new__
