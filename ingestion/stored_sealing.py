"""Sealing what is stored in the clear and is protected now, beside the flows that write. Can be done again.

A page of fragments is read, what is outdated in them is written anew under the origins it has, and each fragment
is replaced where its version is still the one read: nothing that a flow writes meanwhile is lost. Where it had
got to is in the values themselves, so a run that was cut short begins anew and finds what is left. The last step
takes the old bytes out of the files. Why law 1 holds is in docs/adr/0014-policy-change.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ingestion.commit_stage import put_and_settle
from ingestion.key_guard import KeyGuard
from ingestion.outbox import drain_outbox
from ingestion.workers import WorkerResources
from merge import codec
from merge.commit import Backoff
from merge.documents import document
from merge.fragments import FragmentState
from merge.index import IndexDocument
from merge.store import FragmentWrite, StoredFragment
from merge.tombstones import UNJUDGED
from model.errors import ConflictError, DamagedStateError, KeyProviderError, SealError
from model.fragments import Register
from transforms.compiled import CompiledSnapshot
from transforms.sealing import SealingKey
from transforms.stored_values import Restatement, StoredValues

PAGE = 500
SHOWN = 5
"""How many fragments are named where more may be meant."""


@dataclass(slots=True)
class SealingProgress:
    """How far it is. `total` fragments there were at the start; `values` by attribute that were sealed, or got
    another token or none; `readable` fragments by type of a name that stays in the clear, `event` for ids of
    events and `path` for keys.

    `failed` fragments have a damaged state, an unusable key or a value that cannot be opened, and keep what they
    have in the clear; the first are in `named`.
    """

    total: int
    looked_at: int = 0
    fragments: int = 0
    failed: int = 0
    named: list[str] = field(default_factory=list)
    values: Counter[str] = field(default_factory=Counter)
    readable: Counter[str] = field(default_factory=Counter)


class _Outdated(NamedTuple):
    """A fragment with something to restate, and the `until` of the tombstone it was read beside."""

    stored: StoredFragment
    state: FragmentState
    todo: dict[str, Restatement]
    judged: int


class StoredSealing:
    """Seals stored values under one snapshot. One per thread; several may run at once."""

    def __init__(
        self,
        resources: WorkerResources,
        snapshot: CompiledSnapshot,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
        on_readable: Callable[[str, set[str]], None] | None = None,
    ) -> None:
        """`on_readable` is given the id, as it is stored, of each fragment with a name that stays in the clear,
        and the types of such names."""
        self._on_readable = on_readable
        self._resources = resources
        self._store = resources.store
        self._guard = KeyGuard(resources.store, resources.data_keys)
        self._is_indexable = snapshot.attributes.is_indexable
        self._values = StoredValues(snapshot, resources.blind_index)
        self._backoff = backoff or Backoff()
        self._sleep = sleep

    def preview(self, page: int = PAGE) -> Iterator[SealingProgress]:
        """What `run` would find; changes nothing. A value of which only the token changes counts as well."""
        yield from self._pages(page, self._count)

    def run(self, page: int = PAGE) -> Iterator[SealingProgress]:
        """Seal all there is; gives the progress at the start and after each page of at most `page` fragments,
        each page durable. The same object is given again and again. Call `finish` at the end.

        Blocks. Raises StoreError, ConflictError when a fragment kept changing, KeyProviderError when no data
        key can be made; run it again then.
        """
        yield from self._pages(page, self._seal)

    def seal_change(self, fragment_id: str, change: FragmentState) -> None:
        """Seal what an older snapshot left in the clear in a change that is yet to be written.

        Raises SealError or KeyProviderError when a value cannot be sealed: the change must not be written then.
        """
        for tombstone in self._store.tombstones([fragment_id]).values():
            self._resources.data_keys.forget([fragment_id])
            if tombstone.until > change.judged:
                # It will be refused, and needs no key.
                return
        todo = self._values.outdated(change.registers)
        if todo:
            key = self._resources.data_keys.fetch([fragment_id], create=True)[fragment_id]
            registers = change.registers
            change.restate(
                {path: self._values.restated(key, path, registers[path], what) for path, what in todo.items()}
            )

    def finish(self) -> int:
        """Let the index follow, and take what was replaced out of the files of index and store; gives how many
        profiles the index refused, which it finds by what they held.

        Raises ProfileIndexError when the index is away, StoreError when the store is, or when a reader holds its
        log: the old bytes may be there until it is done again.
        """
        refused = drain_outbox(self._store, self._resources.index, self._is_indexable)
        self._resources.index.compact()
        self._store.finish([])
        return refused

    def _pages(
        self, page: int, take: Callable[[Sequence[_Outdated], SealingProgress], None]
    ) -> Iterator[SealingProgress]:
        progress = SealingProgress(self._store.count())
        yield progress
        after = ""
        while found := self._store.scan(after, page):
            take(self._outdated(found, progress), progress)
            progress.looked_at += len(found)
            after = found[-1].id
            yield progress

    def _outdated(self, found: Sequence[StoredFragment], progress: SealingProgress | None) -> list[_Outdated]:
        # After they were read: a tombstone that comes later is refused by the write. Those few that have one
        # were erased and came back, perhaps in between, so they are read again.
        judged = {name: each.until for name, each in self._store.tombstones(f.id for f in found).items()}
        self._resources.data_keys.forget(judged)
        again = self._store.read(list(judged)) if judged else {}
        outdated: list[_Outdated] = []
        for each in found:
            stored = again.get(each.id) if each.id in judged else each
            if stored is None:
                continue
            try:
                state = codec.decode(stored.state)
            except DamagedStateError:
                if progress is not None:
                    self._fail(stored.id, progress)
                continue
            if progress is not None:
                names = self._values.readable_names(state.identifiers, state.registers)
                progress.readable.update(names)
                if names and self._on_readable:
                    self._on_readable(stored.id, names)
            todo = self._values.outdated(state.registers)
            if todo:
                outdated.append(_Outdated(stored, state, todo, judged.get(stored.id, UNJUDGED)))
        return outdated

    def _count(self, outdated: Sequence[_Outdated], progress: SealingProgress) -> None:
        keys = self._resources.data_keys.fetch([each.stored.id for each in outdated], create=False)
        for each in outdated:
            missing = {path: what for path, what in each.todo.items() if what is Restatement.SEAL}
            key = keys.get(each.stored.id)
            found = missing if key is None else {**missing, **self._changed(each, key, progress)}
            progress.fragments += bool(found)
            progress.values.update(found.keys())

    def _seal(self, outdated: Sequence[_Outdated], progress: SealingProgress) -> None:
        for attempt in range(self._backoff.retries + 1):
            if not outdated:
                return
            if attempt:
                self._sleep(self._backoff.pause(attempt - 1))
                again = self._store.read([each.stored.id for each in outdated])
                outdated = self._outdated(list(again.values()), None)
            refused = self._write(outdated, progress)
            outdated = [each for each in outdated if each.stored.id in refused]
        if outdated:
            raise ConflictError(
                f"{len(outdated)} fragment(s) kept changing through {self._backoff.retries} retries; "
                "seal again, nothing is lost"
            )

    def _write(self, outdated: Sequence[_Outdated], progress: SealingProgress) -> set[str]:
        keys = self._resources.data_keys.fetch([each.stored.id for each in outdated], create=True)
        changes: dict[str, dict[str, Register]] = {}
        writes: list[FragmentWrite] = []
        for each in outdated:
            name, version, _ = each.stored
            changed = self._changed(each, keys[name], progress)
            if changed:
                changes[name] = changed
                each.state.restate(changed)
                writes.append(
                    FragmentWrite(name, version, codec.encode(each.state), frozenset(), each.judged)
                )
        refused = self._store.write(writes) if writes else set()
        # An erasure that came meanwhile may have gone by before their keys were made.
        unwritten = (
            each.stored.id for each in outdated if each.stored.id in refused or each.stored.id not in changes
        )
        if buried := self._store.tombstones(unwritten):
            self._guard.erase_of_refused(list(buried))
        documents: list[IndexDocument] = []
        for each in outdated:
            name, version, _ = each.stored
            if name in changes and name not in refused:
                progress.fragments += 1
                progress.values.update(changes[name].keys())
                documents.append(document(name, version + 1, each.state, self._is_indexable))
        put_and_settle(self._store, self._resources.index, documents)
        return refused

    def _changed(self, each: _Outdated, key: SealingKey, progress: SealingProgress) -> dict[str, Register]:
        """What is written of a fragment. One value that cannot be opened does not hold the others."""
        changed: dict[str, Register] = {}
        failed = False
        for path, what in each.todo.items():
            register = each.state.registers[path]
            try:
                restated = self._values.restated(key, path, register, what)
            except (SealError, KeyProviderError):
                failed = True
                continue
            if restated is not register:
                changed[path] = restated
        if failed:
            self._fail(each.stored.id, progress)
        return changed

    def _fail(self, fragment_id: str, progress: SealingProgress) -> None:
        progress.failed += 1
        if len(progress.named) < SHOWN:
            # Its name may be what policy protects now.
            progress.named.append(self._values.shown_name(fragment_id))
