"""Membership of profiles over time: the ledger with the ids of fragments that exist.

Readers resolve profiles themselves, and follow new evidence at once; the ledger has the moment at which the
projection did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from idgraph.model.ledger import CHANGES, Crossing, Ledger, LedgerEntry
from idgraph.model.tombstones import NO_EPOCH, Tombstones


class LedgerStore(Ledger, Tombstones, Protocol):
    """The store that history is read from."""


class ProfileMove(NamedTuple):
    """A fragment became part of another profile, at a moment in epoch milliseconds. `kind` is `merged` where
    it was a profile of its own id before, `split` where it is one now, else `moved`. If a profile, which all
    three name then, `entered` or `left` a segment, or has `changed` in it, the segment is named too. An id is
    `~` and a keyed hash where the fragment is gone."""

    cursor: str
    at_ms: int
    kind: str
    fragment: str
    previous: str
    profile: str
    segment: str = ""


class ProfilePeriod(NamedTuple):
    """The time for which a fragment was part of a profile, in epoch milliseconds. A `from_ms` of None means
    its first event, a `to_ms` of None means now."""

    profile: str
    from_ms: int | None
    to_ms: int | None


class History:
    """Reads the ledger of one store. Every method blocks, and raises StoreError."""

    def __init__(self, store: LedgerStore, name: Callable[[str], str]) -> None:
        """`name` returns the form in which a stored identifier is shown."""
        self._store = store
        self._name = name

    def moves(self, after: str = "") -> Iterator[ProfileMove]:
        """All moves of fragments and crossings of segments behind a cursor, in the order of the ledger. Raises QueryError."""
        while page := self._store.ledger(after, has_changes=False):
            yield from self._moves(page)
            after = page[-1].cursor

    def page(
        self, after: str, limit: int, segment: str | None = None, has_changes: bool = True
    ) -> list[ProfileMove]:
        """Up to `limit` entries behind a cursor, as of `Ledger.ledger`. Raises QueryError for what is no cursor."""
        return self.of(self._store.ledger(after, limit, segment, has_changes))

    def of(self, entries: Sequence[LedgerEntry | Crossing]) -> list[ProfileMove]:
        """These entries of the ledger, one each."""
        return list(self._moves(entries))

    def end(self, after: str) -> str:
        """As of `Ledger.ledger_end`."""
        return self._store.ledger_end(after)

    def periods(self, fragment_ids: Collection[str]) -> dict[str, list[ProfilePeriod]]:
        """The profiles of these fragments, each with its periods, the oldest first."""
        found: dict[str, list[ProfileMove]] = defaultdict(list)
        for move in self._moves(self._store.ledger_of(sorted(fragment_ids))):
            found[move.fragment].append(move)
        return {each: _periods(each, found[each]) for each in sorted(map(self._name, fragment_ids))}

    def shown(self, profiles: Sequence[tuple[bytes, int]]) -> list[str]:
        """The ids of profiles by their keyed hashes, each as of a moment in epoch milliseconds, as in a `ProfileMove`."""
        shown = self._shown({name for name, _ in profiles})
        return [shown(*each) for each in profiles]

    def _shown(self, names: Collection[bytes]) -> Callable[[bytes, int], str]:
        ids = self._store.fragments_named(names)
        tombstones = self._store.tombstones(ids.values())
        # A person who came back after an erasure is another one than before.
        since = {name: tombstones[each].until for name, each in ids.items() if each in tombstones}

        def shown(name: bytes, at_ms: int) -> str:
            if name in ids and at_ms > since.get(name, NO_EPOCH):
                return self._name(ids[name])
            return f"~{name.hex()}"

        return shown

    def _moves(self, entries: Sequence[LedgerEntry | Crossing]) -> Iterator[ProfileMove]:
        shown = self._shown({name for each in entries for name in _named(each)})
        for each in entries:
            fragment, previous, profile = (shown(name, each.at_ms) for name in _named(each))
            if isinstance(each, Crossing):
                segment = each.segment.removesuffix(CHANGES)
                yield ProfileMove(each.cursor, each.at_ms, each.kind, fragment, previous, profile, segment)
            else:
                kind = "merged" if previous == fragment else "split" if profile == fragment else "moved"
                yield ProfileMove(each.cursor, each.at_ms, kind, fragment, previous, profile)


def _named(entry: LedgerEntry | Crossing) -> tuple[bytes, bytes, bytes]:
    if isinstance(entry, LedgerEntry):
        return entry.fragment, entry.previous, entry.profile
    name = entry.profile if isinstance(entry.profile, bytes) else b""
    return name, name, name


def _periods(fragment: str, moves: Sequence[ProfileMove]) -> list[ProfilePeriod]:
    begins: list[tuple[str, int | None]] = [(moves[0].previous if moves else fragment, None)]
    begins += [(each.profile, each.at_ms) for each in moves]
    ends = [each.at_ms for each in moves]
    return [ProfilePeriod(*begin, end) for begin, end in zip(begins, [*ends, None], strict=True)]
