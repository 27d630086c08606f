"""A profile store in memory, for tests and previews: the plainest thing that keeps the protocol."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from idgraph.model.errors import QueryError, StoreError, UnstorableError
from idgraph.model.ledger import CHANGES, Crossing, LedgerEntry
from idgraph.model.pins import PinRecord
from idgraph.model.store import (
    NEW,
    WHOLE,
    Assignment,
    FragmentWrite,
    OutboxEntry,
    OutboxShare,
    SharedIdentifiers,
    StoredFragment,
)
from idgraph.model.timelines import BEGINNING, EVERY_DAY, DueEntry, PageKey, Since
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone, TombstoneNames


class MemoryProfileStore:
    """A `ProfileStore` that is gone with its process. Safe for several threads."""

    def __init__(self, names: TombstoneNames = str.encode) -> None:
        self._names = names
        self._tombstones: dict[bytes, Tombstone] = {}
        self._unfinished: dict[str, FragmentSummary] = {}
        self._withdrawn: dict[str, int] = {}
        self._marks: set[str] = set()
        self._pins: set[PinRecord] = set()
        self._ledger: list[LedgerEntry | Crossing] = []
        self._crossing: set[str] = set()
        self._fragments: dict[str, StoredFragment] = {}
        self._identifiers: dict[str, set[str]] = {}
        self._carriers: dict[str, set[str]] = {}
        self._outbox: dict[str, int] = {}
        self._pages: dict[str, dict[PageKey, bytes]] = {}
        self._due: dict[str, DueEntry] = {}
        self._closed = False
        self._guard = threading.Lock()

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        _refuse_unstorable(ids)
        with self._lock():
            return self._found(ids)

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        _refuse_unstorable(ids)
        with self._lock():
            return self._found(ids), self._tombstoned(ids)

    def read_with_shared(self, ids: Sequence[str]) -> tuple[dict[str, StoredFragment], SharedIdentifiers]:
        _refuse_unstorable(ids)
        with self._lock():
            pinned = {identifier for each in self._pins for identifier in each[:2]}
            shared = {
                name: {
                    each
                    for each in (name, *self._identifiers.get(name, ()))
                    if each in pinned or self._carriers.get(each, set()) - {name}
                }
                for name in ids
                if name in self._fragments
            }
            identifiers = set().union(*shared.values())
            carriers = {each: set(self._carriers.get(each, ())) for each in identifiers}
            in_question = {name for name, some in shared.items() if some}
            return self._found(ids), SharedIdentifiers(in_question, identifiers, carriers)

    def consistent_read(self) -> AbstractContextManager[None]:
        return nullcontext()

    def changes(self) -> None:
        return None

    def _found(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        return {each: self._fragments[each] for each in ids if each in self._fragments}

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        for write in writes:
            _refuse_unstorable((write.id, *write.identifiers))
        with self._lock():
            return {write.id for write in writes if not self._written(write)}

    def _written(self, write: FragmentWrite) -> bool:
        present = self._fragments.get(write.id)
        tombstone = self._tombstones.get(self._names(write.id), _NONE)
        version = present.version if present else tombstone.version
        if version != write.expected_version or tombstone.until > write.erasure_epoch:
            return False
        if present and tombstone.covers(version):
            return False
        profile = present[3:] if present else ()
        self._fragments[write.id] = StoredFragment(write.id, version + 1, write.state, *profile)
        self._identifiers.setdefault(write.id, set()).update(write.identifiers)
        for identifier in write.identifiers:
            self._carriers.setdefault(identifier, set()).add(write.id)
        for identifier in write.dropped:
            self._identifiers[write.id].discard(identifier)
            self._carriers.get(identifier, set()).discard(write.id)
        self._outbox[write.id] = write.expected_version + 1
        pages = {**self._pages.get(write.id, {}), **write.pages}
        self._pages[write.id] = {
            key: page
            for key, page in pages.items()
            if page and key.day >= write.expired.get(key.activity, key.day)
        }
        return True

    def find(self, identifier: str) -> list[str]:
        with self._lock():
            return sorted(self._carriers.get(identifier, ()))

    def find_all(self, identifiers: Sequence[str], limit: int) -> dict[str, list[str]]:
        with self._lock():
            return {each: sorted(self._carriers.get(each, ()))[:limit] for each in identifiers}

    def assign(self, assignments: Sequence[Assignment]) -> set[str]:
        with self._lock():
            return {each.fragment_id for each in assignments if not self._is_assigned(each)}

    def _is_assigned(self, assignment: Assignment) -> bool:
        name, epoch, profile, _, _ = assignment
        present = self._fragments.get(name)
        if present is None or present.epoch != epoch:
            return False
        self._fragments[name] = present = present._replace(
            profile_id=profile, epoch=epoch + 1, version=present.version + 1
        )
        self._outbox[name] = present.version
        if (entry := assignment.entry(self._names)) is not None:
            self._ledger.append(entry._replace(cursor=str(len(self._ledger) + 1)))
        return True

    def cross(self, crossings: Sequence[Crossing]) -> None:
        for each in crossings:
            known = self.crossed([str(each.profile)]).get(str(each.profile), {})
            with self._lock():
                if known.get(each.segment, 0) < each.number:
                    cursor, name = str(len(self._ledger) + 1), self._names(str(each.profile))
                    self._ledger.append(each._replace(profile=name, cursor=cursor))
                    self._crossing.add(str(each.profile))

    def crossed(self, fragment_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        names = {self._names(each): each for each in fragment_ids}
        found: dict[str, dict[str, int]] = {}
        with self._lock():
            for each in self._ledger:
                if isinstance(each, Crossing) and isinstance(each.profile, bytes) and each.profile in names:
                    found.setdefault(names[each.profile], {})[each.segment] = each.number
        return found

    def ledger(
        self, after: str = "", limit: int = 1000, segment: str | None = None, has_changes: bool = True
    ) -> list[LedgerEntry | Crossing]:
        if not (after or "0").isdecimal():
            raise QueryError("this is no cursor of the ledger")
        begin = int(after or "0")
        with self._lock():
            behind = self._ledger[begin:]
        if segment is not None:
            both = (segment, segment + CHANGES)
            behind = [each for each in behind if isinstance(each, Crossing) and each.segment in both]
        if not has_changes:
            behind = [each for each in behind if not isinstance(each, Crossing) or not each.is_change]
        return behind[:limit]

    def ledger_end(self, after: str) -> str:
        return str(len(self._ledger)) if self._ledger else after

    def ledger_of(self, fragment_ids: Sequence[str]) -> list[LedgerEntry]:
        names = set(map(self._names, fragment_ids))
        with self._lock():
            found = [each for each in self._ledger if isinstance(each, LedgerEntry)]
        return [each for each in found if each.fragment in names]

    def fragments_named(self, names: Collection[bytes]) -> dict[bytes, str]:
        with self._lock():
            assigned = {
                self._names(each.id): each.id
                for each in self._fragments.values()
                if each.epoch or each.id in self._crossing
            }
        return {name: assigned[name] for name in names if name in assigned}

    def identifiers(self, fragment_id: str) -> frozenset[str]:
        with self._lock():
            return frozenset(self._identifiers.get(fragment_id, ()))

    def scan(self, after: str = "", limit: int = 1000) -> list[StoredFragment]:
        # The order of code points is the order of UTF-8 bytes.
        with self._lock():
            later = sorted(each for each in self._fragments if each > after)
            return [self._fragments[each] for each in later[:limit]]

    def ids(self) -> Iterator[str]:
        with self._lock():
            return iter(sorted(self._fragments))

    def count(self) -> int:
        with self._lock():
            return len(self._fragments)

    def outbox(self, limit: int = 1000, after: str = "", share: OutboxShare = WHOLE) -> list[OutboxEntry]:
        with self._lock():
            later = sorted(each for each in self._outbox if each > after and share.has(each))
            return [OutboxEntry(each, self._outbox[each]) for each in later[:limit]]

    def enqueue(self, ids: Sequence[str]) -> None:
        with self._lock():
            for each in ids:
                self._enqueue(each)

    def _enqueue(self, fragment_id: str) -> None:
        if (found := self._fragments.get(fragment_id)) is not None:
            self._fragments[fragment_id] = found._replace(version=found.version + 1)
            self._outbox[fragment_id] = found.version + 1

    def pages(self, keys: Collection[tuple[str, PageKey]]) -> dict[tuple[str, PageKey], bytes]:
        with self._lock():
            return {
                (name, key): self._pages[name][key] for name, key in keys if key in self._pages.get(name, ())
            }

    def timelines(
        self, ids: Collection[str], activities: Collection[str] | None = None, since: Since = EVERY_DAY
    ) -> dict[str, dict[PageKey, bytes]]:
        with self._lock():
            found = {
                name: {
                    key: page[:BEGINNING] if key.day < since.get(key.activity, key.day) else page
                    for key, page in self._pages.get(name, {}).items()
                    if activities is None or key.activity in activities
                }
                for name in ids
            }
            return {name: pages for name, pages in found.items() if pages}

    def plan(self, due: Collection[DueEntry]) -> None:
        with self._lock():
            for each in due:
                present = self._due.get(each.fragment_id, each)
                if each.fragment_id in self._fragments and each.version >= present.version:
                    self._due.pop(each.fragment_id, None)
                    if each.at_ms:
                        self._due[each.fragment_id] = each

    def take_due(self, now_ms: int, limit: int) -> int:
        with self._lock():
            due = sorted((each for each in self._due.values() if each.at_ms <= now_ms), key=lambda e: e.at_ms)
            for each in due[:limit]:
                del self._due[each.fragment_id]
                self._enqueue(each.fragment_id)
            return len(due[:limit])

    def add_pins(self, pins: Sequence[PinRecord]) -> None:
        with self._lock():
            self._pins.update(pins)

    def pins_of(self, identifiers: Sequence[str]) -> list[PinRecord]:
        wanted = set(identifiers)
        with self._lock():
            return [each for each in self._pins if not wanted.isdisjoint(each[:2])]

    def pins(self) -> Iterator[PinRecord]:
        with self._lock():
            return iter(sorted(self._pins))

    def drop_pins(self, identifiers: Sequence[str]) -> None:
        wanted = set(identifiers)
        with self._lock():
            self._pins = {each for each in self._pins if wanted.isdisjoint(each[:2])}

    def settle(self, entries: Sequence[OutboxEntry]) -> None:
        with self._lock():
            for fragment_id, version in entries:
                if self._outbox.get(fragment_id, version + 1) <= version:
                    del self._outbox[fragment_id]

    def tombstones(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        with self._lock():
            return self._tombstoned(ids)

    def _tombstoned(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        if not self._tombstones:
            return {}
        found = ((each, self._tombstones.get(self._names(each))) for each in ids)
        return {each: tombstone for each, tombstone in found if tombstone is not None}

    def summaries(self, ids: Sequence[str]) -> list[FragmentSummary]:
        with self._lock():
            return [self._summary(each) for each in ids]

    def erase(self, ids: Sequence[str], until: int) -> list[FragmentSummary]:
        with self._lock():
            return [self._erased(each, until) for each in ids]

    def unfinished(self) -> list[FragmentSummary]:
        with self._lock():
            return [self._unfinished[each] for each in sorted(self._unfinished)]

    def finish(self, ids: Sequence[str]) -> None:
        with self._lock():
            for each in ids:
                self._unfinished.pop(each, None)

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        with self._lock():
            return {each for each, version in versions.items() if not self._is_withdrawn(each, version)}

    def _is_withdrawn(self, fragment_id: str, version: int) -> bool:
        present = self._fragments.get(fragment_id)
        if present is None or present.version != version:
            return present is None
        name = self._names(fragment_id)
        behind = self._summary(fragment_id).tombstone()
        self._tombstones[name] = self._tombstones.get(name, _NONE).joined(behind)
        self._withdrawn[fragment_id] = version
        self._remove(fragment_id, self._tombstones[name].version)
        return True

    def withdrawn(self) -> dict[str, int]:
        with self._lock():
            return dict(self._withdrawn)

    def forget_withdrawn(self, ids: Sequence[str]) -> None:
        with self._lock():
            for each in ids:
                self._withdrawn.pop(each, None)

    def all_tombstones(self) -> dict[bytes, Tombstone]:
        with self._lock():
            return dict(self._tombstones)

    def reinstate(self, tombstones: Mapping[bytes, Tombstone]) -> int:
        with self._lock():
            lost = len(tombstones.keys() - self._tombstones.keys())
            for name, tombstone in tombstones.items():
                self._tombstones[name] = self._tombstones.get(name, _NONE).joined(tombstone)
            return lost

    def cancel(self, ids: Sequence[str]) -> int:
        with self._lock():
            names = {self._names(each) for each in ids if each not in self._unfinished}
            cancelled = [name for name in names if self._tombstones.get(name, _NONE).until > NO_EPOCH]
            for name in cancelled:
                self._tombstones[name] = self._tombstones[name]._replace(until=NO_EPOCH)
            return len(cancelled)

    def remember(self, mark: str, instead_of: str = "") -> None:
        with self._lock():
            self._marks.discard(instead_of)
            self._marks.add(mark)

    def remembers(self, mark: str) -> bool:
        with self._lock():
            return mark in self._marks

    def name(self, text: str) -> bytes:
        return self._names(text)

    def close(self) -> None:
        with self._guard:
            self._closed = True

    def _summary(self, fragment_id: str) -> FragmentSummary:
        present = self._fragments.get(fragment_id)
        identifiers = frozenset(self._identifiers.get(fragment_id, ()))
        version, epoch = (present.version, present.epoch) if present else (NEW, 0)
        return FragmentSummary(fragment_id, version, identifiers, fragment_id in self._outbox, epoch)

    def _erased(self, fragment_id: str, until: int) -> FragmentSummary:
        found, name = self._summary(fragment_id), self._names(fragment_id)
        kept = self._tombstones.get(name, _NONE).joined(found.tombstone(until))
        self._tombstones[name] = kept
        noted = self._unfinished.get(fragment_id, found)
        erased = found._replace(version=kept.version, identifiers=found.identifiers | noted.identifiers)
        self._unfinished[fragment_id] = erased._replace(in_outbox=False)
        self._remove(fragment_id, kept.version)
        return erased

    def _remove(self, fragment_id: str, version: int) -> None:
        self._fragments.pop(fragment_id, None)
        self._pages.pop(fragment_id, None)
        self._due.pop(fragment_id, None)
        self._outbox[fragment_id] = version
        for identifier in self._identifiers.pop(fragment_id, ()):
            self._carriers[identifier].discard(fragment_id)

    def _lock(self) -> threading.Lock:
        if self._closed:
            raise StoreError("the profile store in memory is closed")
        return self._guard


def _refuse_unstorable(names: Iterable[str]) -> None:
    try:
        for name in names:
            name.encode()
    except UnicodeEncodeError:
        raise UnstorableError("text that is not valid Unicode cannot be stored") from None


_NONE = Tombstone(NO_EPOCH, NEW)
