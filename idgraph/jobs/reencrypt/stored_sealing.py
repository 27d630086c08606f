"""Seals values that are stored in the clear and are protected now, beside the flows that write. Can be done
again.

A page of fragments is read, and stale values in them are rewritten under their origins. Each fragment is
replaced where its version is still the one read, so no write of a flow is lost meanwhile. The values
themselves show the remaining work, so an interrupted run may begin again, or resume behind the last page. The
last step removes the old bytes from the files. docs/adr/0014-policy-change.md shows why law 1 holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from idgraph.jobs.reencrypt.dead_letter_renaming import DeadLetterRenaming
from idgraph.jobs.reencrypt.renaming import Renaming
from idgraph.jobs.reencrypt.stale import StaleFragment, StaleSearch, fail, marks_of
from idgraph.jobs.reencrypt.stored_timelines import StoredTimelines
from idgraph.model.backoff import Backoff
from idgraph.model.errors import (
    ConflictError,
    KeyProviderError,
    KeyServiceError,
    ProfileIndexError,
    SealError,
)
from idgraph.model.fragments import Kind, Register
from idgraph.model.index import IndexRules
from idgraph.model.jobs import Progress
from idgraph.model.store import FragmentWrite, scan_pages
from ingestion.spark.workers import WorkerResources
from merge.fragments import FragmentState
from transforms.privacy.protected_names import StoredNames
from transforms.privacy.sealing import SealingKey
from transforms.privacy.stored_values import Resealing, StoredValues
from transforms.spec.mapping import CompiledSnapshot

PAGE = 500
PROJECTED_AT_ONCE = 5_000
PROJECTED_SECONDS = 5.0
"""So many fragments, or those of so long, are projected together: a commit of the index costs as much for few."""

_Resealed = list[tuple[str, Register, Register]]
"""Paths, the registers that stand there, and what takes their places."""


class StoredSealing:
    """Seals stored values under one snapshot. One per thread; several may run at once."""

    def __init__(
        self,
        resources: WorkerResources,
        snapshot: CompiledSnapshot,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
        on_readable: Callable[[str, set[str]], None] | None = None,
        changed: Collection[str] | None = None,
        is_projected: bool = False,
        rules: Callable[[], IndexRules] | None = None,
    ) -> None:
        """`rules` are those of the newest snapshot, for documents; by default those of this one. `is_projected` says that another thread projects commits, so that only the last step waits for the
        index. `changed` are the paths whose policy changed since all was sealed; by default all is looked at.
        `on_readable` is called for each fragment with names in the clear that are to be renamed, or that stay
        as keys. It gets the id, as it is stored, and the types of such names."""
        self._resources = resources
        self._store = resources.store
        self._orphaned_keys = resources.orphaned_keys()
        self._projection = resources.projection(rules or (lambda: snapshot.attributes.index_rules))
        self._values = StoredValues(snapshot, resources.blind_index)
        self._names = StoredNames(snapshot.snapshot, resources.blind_index, snapshot.protected_names)
        self._timelines = StoredTimelines(snapshot, self._values, self._names)
        marks = None if changed is None else marks_of(changed)
        self._search = StaleSearch(resources, self._values, self._names, self._timelines, on_readable, marks)
        self._is_projected = is_projected
        self._unprojected: list[str] = []
        self._projected_at = -PROJECTED_SECONDS
        self._renaming = Renaming(resources, self._values, self._names, self._timelines, self._projection)
        self._dead_letters = DeadLetterRenaming(resources, self._names, self.seal_change)
        self._backoff = backoff or Backoff()
        self._sleep = sleep

    def preview(self, progress: Progress, page: int = PAGE) -> Iterator[str]:
        """Count what `run` would find, as it counts; changes nothing. A value whose token alone changes
        counts as well."""
        yield from self._pages(progress, page, self._count)

    def run(self, progress: Progress, page: int = PAGE, after: str = "") -> Iterator[str]:
        """Seal all fragments behind the id `after`. Yields the id of the last fragment after each durable
        page of at most `page` fragments. Call `finish` at the end.

        It counts sealed `fragments`, and by attribute `values` that were sealed, or got another token or
        none. It counts `renamed` fragments by type of a name that is a keyed hash now (`event` for ids of
        events). Fragments with keys in the clear that look sensitive are `readable` (`path`: those stay).
        `dead_letters` keep a name in the clear since they cannot be read. `failed` fragments have a damaged
        state, an unusable key or a value that cannot be opened, and keep values in the clear. The notes have
        the first of them.

        Blocks. Raises StoreError, ConflictError when a fragment kept changing, KeyProviderError when no data
        key can be made; run it again then.
        """
        # Before fragments: the content of a dead letter is opened by the data key that goes with its
        # fragment's old name.
        progress.counts["dead_letters"] = self._dead_letters.run()
        yield from self._pages(progress, page, self._seal_page, after)

    def seal_change(self, fragment_id: str, change: FragmentState) -> tuple[str, FragmentState]:
        """A change that is yet to be written as today's events would ask for it, with the fragment that it is
        for. Values and names that an older snapshot left in the clear are sealed.

        Raises SealError or KeyProviderError when a value cannot be sealed: the change must not be written
        then.
        """
        for tombstone in self._store.tombstones([fragment_id]).values():
            self._resources.data_keys.forget([fragment_id])
            if tombstone.refuses(change.erasure_epoch):
                # It will be refused, and needs no key.
                return fragment_id, change
        change.timeline = self._timelines.change(change.timeline)
        if self._search.types(fragment_id, change):
            return self._renaming.renamed_change(fragment_id, change)
        todo = self._values.stale(change.stored())
        if todo:
            key = self._resources.data_keys.fetch([fragment_id], create=True)[fragment_id]
            change.reseal([(each.path, each.register, self._values.resealed(key, each)) for each in todo])
        return fragment_id, change

    def finish(self) -> int:
        """Bring the index up to date, and remove replaced bytes from the files. Returns the number of
        profiles that the index refused, which it finds by their former values.

        Raises ProfileIndexError when the index is away, StoreError when the store is, or when a reader holds
        its log. Then the old bytes may be there until it is done again.
        """
        self._renaming.settle()
        refused = self._projection.sweep().left()
        # A renamed fragment's data key stood under the old name, and its dead letters.
        self._resources.data_keys.compact()
        self._resources.dead_letters.compact()
        self._resources.index.compact()
        self._store.finish([])
        return refused

    def _pages(
        self,
        progress: Progress,
        page: int,
        take: Callable[[Sequence[StaleFragment], Progress], None],
        after: str = "",
    ) -> Iterator[str]:
        for found in scan_pages(self._store, page, after):
            take(self._search.find(found, progress), progress)
            # A page that failed is not counted: it is taken up again. Fragments that got another name come
            # again.
            progress.done += len(found)
            progress.total = max(progress.total, progress.done)
            yield found[-1].id

    def _count(self, stale: Sequence[StaleFragment], progress: Progress) -> None:
        keys = self._resources.data_keys.fetch([each.stored.id for each in stale], create=False)
        for each in stale:
            key = keys.get(each.stored.id)
            found = [value.path for value in each.todo if value.what is Resealing.SEAL]
            if key is not None:
                changed = self._changed(each, key, progress)
                found += [path for path, register, _ in changed if register.kind is Kind.SEALED]
            progress.counts["fragments"] += bool(found or each.types or each.pages)
            progress.count("values", found)
            progress.count("renamed", each.types)

    def _seal_page(self, stale: Sequence[StaleFragment], progress: Progress) -> None:
        self._seal(stale, progress)
        if self._is_projected:
            return
        self._unprojected += [each.stored.id for each in stale]
        now = time.monotonic()
        if len(self._unprojected) < PROJECTED_AT_ONCE and now < self._projected_at + PROJECTED_SECONDS:
            return
        self._projected_at = now
        # Not the outbox of a flow beside it. During an outage of the index, `finish` does it later, the flow,
        # or the next run.
        with suppress(ProfileIndexError):
            self._projection.project(self._unprojected)
        self._unprojected.clear()

    def _seal(self, stale: Sequence[StaleFragment], progress: Progress) -> None:
        for attempt in range(self._backoff.retries + 1):
            if not stale:
                return
            if attempt:
                self._sleep(self._backoff.pause(attempt - 1))
                stale = self._search.find_again([each.stored.id for each in stale])
            refused, unnamed = self._rename([each for each in stale if each.types], progress)
            refused |= self._write([each for each in stale if not each.types] + unnamed, progress)
            stale = [each for each in stale if each.stored.id in refused]
        if stale:
            raise ConflictError(
                f"{len(stale)} fragment(s) kept changing through {self._backoff.retries} retries; "
                "seal again, nothing is lost"
            )

    def _rename(
        self, stale: Sequence[StaleFragment], progress: Progress
    ) -> tuple[set[str], list[StaleFragment]]:
        """Rename fragments, and seal them with it. Returns those that changed meanwhile, and those that keep
        their names for a value that cannot be opened. Other values of the latter are sealed all the same."""
        if not stale:
            return set(), []
        result = self._renaming.rename(stale)
        # During an outage of the index, `finish` does it later, or the next run.
        with suppress(ProfileIndexError):
            self._renaming.settle()
        for each in stale:
            if each.stored.id in result.done:
                progress.count("renamed", each.types)
        progress.counts["fragments"] += len(result.done)
        progress.count("values", result.values)
        failed = [each for each in stale if each.stored.id in result.failed]
        for each in failed:
            fail(progress, each.name)
        return result.moved_on, failed

    def _write(self, stale: Sequence[StaleFragment], progress: Progress) -> set[str]:
        keys = self._resources.data_keys.fetch([each.stored.id for each in stale], create=True)
        changes: dict[str, _Resealed] = {}
        writes: list[FragmentWrite] = []
        for each in stale:
            name, version = each.stored.id, each.stored.version
            changed = self._changed(each, keys[name], progress)
            if changed:
                each.state.reseal(changed)
            if changed or each.pages:
                changes[name] = changed
                state = each.state.encode()
                writes.append(
                    FragmentWrite(name, version, state, frozenset(), each.erasure_epoch, pages=each.pages)
                )
        refused = self._store.write(writes) if writes else set()
        # An erasure that came meanwhile may have gone by before their keys were made.
        unwritten = (
            each.stored.id for each in stale if each.stored.id in refused or each.stored.id not in changes
        )
        if tombstoned := self._store.tombstones(unwritten):
            self._orphaned_keys.erase(tombstoned)
        for name, changed in changes.items():
            if name not in refused:
                progress.counts["fragments"] += 1
                progress.count("values", [path for path, _, _ in changed])
        return refused

    def _changed(self, each: StaleFragment, key: SealingKey, progress: Progress) -> _Resealed:
        """The registers of a fragment to write. One value that cannot be opened does not stop the others."""
        changed: _Resealed = []
        failed = False
        for value in each.todo:
            try:
                resealed = self._values.resealed(key, value)
            except KeyServiceError:
                # All the others would fail too, and count as looked at.
                raise
            except (SealError, KeyProviderError):
                failed = True
                continue
            if resealed is not value.register:
                changed.append((value.path, value.register, resealed))
        if failed and not each.types:
            fail(progress, each.name)
        return changed
