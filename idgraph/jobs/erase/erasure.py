"""Erasing fragments everywhere idgraph keeps something of them. Every step may be done again.

The order, and what a crash behind each step leaves:

1. Tombstones, in a file apart from the store. Nothing else is changed; the same command begins again.
2. Data keys. Protected values are unreadable wherever copies are; a running flow makes new keys.
3. The store, in one transaction: rows gone, tombstone set, the fragments noted as unfinished. From here on
   no event that was taken before can bring them back, and `again` and `cancel` finish the erasure.
4. Index documents; data keys that a worker made in between (see `KeyGuard`), and dead letters; then the files of
   keys, dead letters and index are compacted.
5. The store's file is, and what was noted is forgotten.

One process at a time changes file and store: else one might end with an erasure and the other with its cancellation.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from typing import NamedTuple, Protocol

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch, FoundDeadLetter
from idgraph.jobs.job import PagedJob, Plan
from idgraph.model.errors import DamagedStateError, ProfileIndexError, StoreError
from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexRules, search_pages
from idgraph.model.jobs import JobKind, Point, Progress
from idgraph.model.store import scan_pages
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone, TombstoneNames
from ingestion.spark.workers import WorkerResources
from merge.fragments import FragmentState
from merge.identity.components import pins_of
from merge.identity.rules import Rules

log = logging.getLogger(__name__)

_PAGE = 1000
_MOST_CARRIERS = 10_000


class TombstoneKeeper(Protocol):
    """Keeps tombstones apart from the store. Raises StoreError."""

    def append(self, tombstones: dict[bytes, Tombstone]) -> None:
        """Only within `alone`."""
        ...

    def read(self) -> dict[bytes, Tombstone]: ...

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else has it meanwhile, in this process or another; waits. Its holder must not ask for it
        again."""
        ...


class Erased(NamedTuple):
    """The numbers of erased items by place, or for a dry run of those that are there. `possible_dead_letters`
    are kept: only a value that others may have as well says whose they are."""

    fragments: int = 0
    identifiers: int = 0
    outbox_entries: int = 0
    data_keys: int = 0
    index_documents: int = 0
    dead_letters: int = 0
    possible_dead_letters: int = 0

    def plus(self, other: Erased) -> Erased:
        """The sum of two runs, neither of which counts removals of the other."""
        return Erased(*(a + b for a, b in zip(self, other, strict=True)))


class Preview(NamedTuple):
    """The fragments that an erasure would find, and the dead letters with the reason."""

    counts: Erased
    fragments: list[FragmentSummary]
    dead_letters: list[FoundDeadLetter]


class ErasureJob(PagedJob):
    """One call of an erasure as a job. It has no point: an interrupted erasure is noted in the store, and
    done again."""

    kind = JobKind.ERASE

    def __init__(
        self, action: str, names: Sequence[str], hashes: TombstoneNames, work: Callable[[], Erased]
    ) -> None:
        """`action` is `erase`, `again` or `cancel`; `names` are the fragments that it names."""
        self.target = hashlib.sha256(b"".join(sorted(map(hashes, names)))).hexdigest()[:16]
        self.what = {"action": action, "fragments": len(names)}
        self.erased = Erased()
        self._work = work

    def plan(self, _point: Point) -> Plan:
        return Plan("the erasure", 1, "step")

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        self.erased = self._work()
        progress.done = 1
        progress.counts.update(self.erased._asdict())
        yield {}


class Erasure:
    """Erases fragments. Safe beside a running flow; every method raises what the stores raise."""

    def __init__(
        self,
        resources: WorkerResources,
        keeper: TombstoneKeeper,
        names: TombstoneNames,
        dead_letters: Callable[[], DeadLetterSearch],
        rules: Callable[[], IndexRules],
        erase_elsewhere: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        """`dead_letters` is called when dead letters are looked through, and `rules`, as of `Projection`,
        when a fragment came back meanwhile: both need a snapshot. `erase_elsewhere` removes copies of
        fragments beside the stores; it may be called again."""
        self._store = resources.store
        self._index = resources.index
        self._rules = rules
        self._projection = resources.projection(rules)
        self._data_keys = resources.data_keys
        self._guard = resources.key_guard()
        self._orphaned_keys = resources.orphaned_keys()
        self._dead_letters = resources.dead_letters
        self._blind_index = resources.blind_index
        self._keeper = keeper
        self.names = names
        self._find_dead_letters = dead_letters
        self._erase_elsewhere = erase_elsewhere

    def preview(self, ids: Sequence[str], identifiers: Iterable[str] = ()) -> Preview:
        """Find what `erase` would remove; changes nothing."""
        noted = {each.fragment_id: each for each in self._store.unfinished()}
        ids = [*ids, *self._present(self._other_names(ids), noted)]
        found = [_with_noted(each, noted.get(each.fragment_id)) for each in self._store.summaries(ids)]
        dead_letters = self._dead_letters_of(found, identifiers)
        certain = sum(each.certain for each in dead_letters)
        keys = len(self._data_keys.existing(ids))
        documents = len(self._index.versions(ids))
        counts = _counted(found, keys, documents, certain, len(dead_letters) - certain)
        return Preview(counts, [each for each in found if each.version > 0], dead_letters)

    def erase(self, ids: Sequence[str], until: int, identifiers: Iterable[str] = ()) -> Erased:
        """Erase these fragments, and the dead letters that certainly carry one of their identifiers or of
        those given.

        `until` as in `Tombstone`: events up to this moment bring nothing back. To keep law 1 it must not be
        earlier than any ordinal that was accepted before: now and the allowed skew.
        """
        with self._keeper.alone():
            return self._erase(ids, until, identifiers)

    def _erase(self, ids: Sequence[str], until: int, identifiers: Iterable[str]) -> Erased:
        ids = self._with_other_names(ids, until)
        summaries = self._store.summaries(ids)
        self._keep(summaries, until)
        keys = self._data_keys.erase(ids)
        documents = self._present_documents(ids)
        beside = self._forget_taken_back(ids)
        erased = self._store.erase(ids, until)
        # It may have been written again meanwhile.
        self._keep(erased, until)
        rest = self._finish(erased, identifiers, beside)
        # A flow's projection may have been faster.
        documents = max(documents, rest.index_documents)
        waited = {each.fragment_id for each in summaries if each.in_outbox}
        found = [each._replace(in_outbox=each.fragment_id in waited) for each in erased]
        return _counted(found, keys, documents, rest.dead_letters, rest.possible_dead_letters)

    def _forget_taken_back(self, ids: Sequence[str]) -> set[str]:
        """Forget decisions on identifiers that only events showed which are taken back: the state alone has
        them. Puts other fragments that carry one into the outbox, and returns them: the index may not know
        yet that these are others."""
        taken_back: set[str] = set()
        for each in self._store.read(ids).values():
            # A damaged state cannot be read.
            with suppress(DamagedStateError):
                taken_back |= FragmentState.checked(each.state).names_and_others()[1]
        beside, forgotten = self._beside(taken_back)
        self._store.enqueue(sorted(beside))
        self._store.drop_pins(forgotten)
        return beside

    def _beside(self, identifiers: set[str]) -> tuple[set[str], list[str]]:
        """The fragments that carry one of these or are pinned to one, without marks that these are hubs; and those that
        nobody carries."""
        for each in identifiers:
            self._projection.forget_hub(each)
        rules = Rules(self._rules().identity)
        pinned = {
            str(end)
            for record in self._store.pins_of(sorted(identifiers))
            for pin in pins_of(record, rules)
            for end in pin.pair
        }
        carriers = self._store.find_all(sorted(identifiers | pinned), _MOST_CARRIERS)
        uncarried = sorted(each for each in identifiers if not carriers.get(each))
        return {name for names in carriers.values() for name in names}, uncarried

    def _present_documents(self, ids: Sequence[str]) -> int:
        """The number of these that have a document; 0 while the index is away."""
        try:
            return len(self._index.versions(ids))
        except ProfileIndexError:
            return 0

    def cut_short(self, identifiers: Collection[str]) -> list[str]:
        """The fragments that carried one of these identifiers, and whose erasure is not finished: their rows
        are gone, so that nothing else finds them."""
        return [
            each.fragment_id
            for each in self._store.unfinished()
            if not each.identifiers.isdisjoint(identifiers) or each.fragment_id in identifiers
        ]

    def repair(self) -> None:
        """Before a flow writes: give a restored store its tombstones back, and finish interrupted
        erasures."""
        with self._keeper.alone():
            lost = self._store.reinstate(self._keeper.read())
            if lost or self._store.unfinished():
                log.warning("erasures were interrupted or lost with a restored backup: erasing again")
                self._again()

    def again(self) -> Erased:
        """Resume interrupted erasures, and erase fragments that a restored backup brought back. Beside a
        flow, its writes to these are refused once the tombstones are there again, and retried."""
        with self._keeper.alone():
            self._store.reinstate(self._keeper.read())
            return self._again()

    def _again(self) -> Erased:
        pending = self._store.unfinished()
        done = self._finish(pending, [])
        documents = self._erase_restored_documents()
        by_moment: dict[int, list[str]] = {}
        for fragment_id, tombstone in self._store.tombstones(set(self._restored_rows())).items():
            by_moment.setdefault(tombstone.until, []).append(fragment_id)
        for until, ids in by_moment.items():
            done = done.plus(self._erase(sorted(ids), until, []))
        return done._replace(index_documents=done.index_documents + documents)

    def cancel(self, ids: Sequence[str]) -> tuple[int, Erased]:
        """Let events of any ordinal bring these fragments back; returns the number of forbidden ones, and the
        counts of erasures that it finished.

        It first finishes interrupted erasures, whatever they name, since a dead letter may be certain by
        another name of the same erasure. Else dead letters that they have not reached would bring erased
        fragments back, and they would take later ones, too. Raises StoreError where somebody who keeps
        tombstones elsewhere erases them meanwhile.
        """
        with self._keeper.alone():
            return self._cancel(ids)

    def _cancel(self, ids: Sequence[str]) -> tuple[int, Erased]:
        pending = self._store.unfinished()
        finished = self._finish(pending, []) if pending else Erased()
        others = self._other_names(ids)
        # First: the store gets all that the file forbids back at the next start.
        self._keeper.append(self._cancelled([*ids, *others]))
        cancelled = self._store.cancel(ids)
        self._store.cancel(others)
        if begun := {each.fragment_id for each in self._store.unfinished()}.intersection([*ids, *others]):
            raise StoreError(
                f"{len(begun)} of them are being erased just now, elsewhere; cancel again when that has ended"
            )
        return cancelled, finished

    def _cancelled(self, ids: Sequence[str]) -> dict[bytes, Tombstone]:
        """The cancellations of these fragments' tombstones, by name; none for a fragment that nobody erased."""
        kept, stored = self._keeper.read(), self._store.tombstones(ids)
        names = {each: self.names(each) for each in ids}
        return {
            name: Tombstone(NO_EPOCH, 0) for each, name in names.items() if name in kept or each in stored
        }

    def _other_names(self, ids: Sequence[str]) -> list[str]:
        """The keyed hashes that these fragments' ids become where policy protects them."""
        hashed = {str(self._blind_index.identifier(Identifier.parse(each))) for each in ids}
        return sorted(hashed - set(ids))

    def _with_other_names(self, ids: Sequence[str], until: int) -> list[str]:
        """These fragments, and those of their other names that have stored data or an interrupted erasure. A
        policy may come, or be on its way, under which the same events go there. The others are forbidden
        already."""
        others = self._other_names(ids)
        forbidden = {self.names(each): Tombstone(until, 0) for each in others}
        self._keeper.append(forbidden)
        self._store.reinstate(forbidden)
        # Looked for behind the tombstones: fragments that a flow made before them are seen, and none is made
        # after them.
        return [*ids, *self._present(others, {each.fragment_id for each in self._store.unfinished()})]

    def _present(self, ids: Sequence[str], noted: Collection[str]) -> list[str]:
        present = {*self._store.read(ids), *self._data_keys.existing(ids), *noted}
        return [each for each in ids if each in present]

    def _keep(self, found: Iterable[FragmentSummary], until: int) -> None:
        self._keeper.append({self.names(each.fragment_id): Tombstone(until, each.version) for each in found})

    def _finish(
        self, found: Sequence[FragmentSummary], identifiers: Iterable[str], beside: Collection[str] = ()
    ) -> Erased:
        """The steps after the store's transaction. `beside` are fragments to project with them."""
        ids = [each.fragment_id for each in found]
        self._erase_elsewhere(ids)
        if ids or identifiers:
            # First: while the index is away later events may be set aside, and their dead letters, which go with the keys,
            # may be replayed.
            documents = self._projection.project(ids).erased
            self._project_rest(found, beside)
            # A fragment that came back since, by later events, has a key of its own by now.
            keys = self._guard.erase_unused(ids)
            dead_letters = self._dead_letters_of(found, identifiers)
            certain = {each.id: each.position for each in dead_letters if each.certain}
            # Changes may be set aside under another name, which has a key and no row.
            self._orphaned_keys.erase_of_dead_letters(certain)
            dropped, kept = self._dead_letters.drop([*certain]), len(dead_letters) - len(certain)
        else:
            keys = documents = dropped = kept = 0
        # Also where nothing was left to delete: a run before this one may have been interrupted.
        self._data_keys.compact()
        self._dead_letters.compact()
        self._index.compact()
        self._store.forget_withdrawn(ids)
        self._store.finish(ids)
        return _counted(found, keys, documents, dropped, kept)

    def _project_rest(self, found: Sequence[FragmentSummary], beside: Collection[str]) -> None:
        """Project the profiles that these fragments were a part of, and forget decisions on identifiers that nobody has any
        more."""
        others, forgotten = self._beside(
            {name for each in found for name in (each.fragment_id, *each.identifiers)}
        )
        self._projection.project(others.union(beside), has_lost=True)
        # Last: they lead to fragments that an interrupted run has not projected.
        self._store.drop_pins(forgotten)

    def _dead_letters_of(
        self, found: Sequence[FragmentSummary], identifiers: Iterable[str]
    ) -> list[FoundDeadLetter]:
        if not self._dead_letters.counts():
            return []
        carried = {name for each in found for name in each.identifiers}
        ids = [each.fragment_id for each in found]
        # Changes may be set aside under another name without a row or a key, which nothing else finds.
        ids += self._other_names(ids)
        return list(self._find_dead_letters().find(self._dead_letters.scan(), ids, {*carried, *identifiers}))

    def _restored_rows(self) -> Iterator[str]:
        for page in scan_pages(self._store, _PAGE):
            tombstoned = self._store.tombstones([each.id for each in page])
            for fragment in page:
                tombstone = tombstoned.get(fragment.id)
                # A fragment that later events made has a version behind the erased one.
                if tombstone and tombstone.covers(fragment.version):
                    yield fragment.id

    def _erase_restored_documents(self) -> int:
        """Erase documents and data keys that a restored backup brought back and that have no row; returns the
        number of documents. Dead letters stay: their person may be stored under another name, if a renaming
        ran while the index was away."""
        restored: dict[str, None] = {}
        # A fragment that was a part of a profile had a key, and no document of its own.
        for ids in chain(
            (page.ids for page in search_pages(self._index, _PAGE)), self._data_keys.fragments()
        ):
            stored = self._store.read(ids)
            tombstoned = self._store.tombstones([each for each in ids if each not in stored])
            restored |= {name: None for name, each in tombstoned.items() if each.until != NO_EPOCH}
        if not restored:
            return 0
        if self._orphaned_keys.erase(restored):
            self._data_keys.compact()
        erased = self._projection.project(restored).erased
        self._index.compact()
        return erased


def _with_noted(erased: FragmentSummary, noted: FragmentSummary | None) -> FragmentSummary:
    return erased._replace(identifiers=erased.identifiers | noted.identifiers) if noted else erased


def _counted(
    found: Sequence[FragmentSummary], keys: int, documents: int, dead_letters: int, kept: int
) -> Erased:
    return Erased(
        fragments=sum(each.version > 0 and bool(each.identifiers or each.in_outbox) for each in found),
        identifiers=sum(len(each.identifiers) for each in found),
        outbox_entries=sum(each.in_outbox for each in found),
        data_keys=keys,
        index_documents=documents,
        dead_letters=dead_letters,
        possible_dead_letters=kept,
    )
