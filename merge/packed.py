"""The entries of a large cell as sorted blocks of bytes, of which only those are read that something is joined to.

Of each source there is a run of entries in the order of their ranks, cut into blocks. Where a block begins is reported
by an entry alone, by a hash of it, one of 64: so equal runs have equal blocks whatever they came from, and a
new entry changes the bytes of one block. All that takes entries away takes a beginning of a run (`merge.cells`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from idgraph.model import canonical
from idgraph.model.errors import DamagedStateError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from merge.policies.policy import Policy, later

LARGE = 128
"""Entries from which on a cell is kept so."""
_MEAN_ENTRIES = 64

Row = tuple[int, int, int, int, str, str, int]
"""A block: its bytes, its entries, and of the first one priority, ordinal, event id, spec name and version."""
Run = tuple[str, list[int], list[Row]]
"""Source, the priorities that occur, and blocks."""

Bytes = bytes | memoryview
"""Of a state that was read: a copy of all blocks would cost more than what is done to one."""

_Maker = tuple[int, str, int]
_Wire = tuple[list[_Maker], list[tuple[int, int, str, int, Any]]]
_decoder = msgspec.json.Decoder(_Wire, float_hook=canonical.exact_number)


class _Block:
    """Sorted entries of one source; `data` is None from when they change until they are encoded again."""

    __slots__ = ("_entries", "count", "data", "first", "source")

    def __init__(
        self,
        source: str,
        first: Origin,
        count: int,
        data: Bytes | None,
        entries: list[Register] | None = None,
    ) -> None:
        self.source = source
        self.first = first
        self.count = count
        self.data = data
        self._entries = entries

    def read(self) -> list[Register]:
        if self._entries is None:
            self._entries = _decode(self.source, self.data or b"")
        return self._entries

    def change(self, entries: list[Register]) -> None:
        self._entries, self.count, self.data = entries, len(entries), None
        if entries:
            self.first = entries[0].origin


class Found(NamedTuple):
    """Where an entry with a key stands."""

    block: _Block
    entry: Register


class Packed:
    """Entries of a policy. Mutable while it is joined; not safe for several threads."""

    __slots__ = ("_policy", "_priorities", "_runs")

    def __init__(
        self, policy: Policy, runs: dict[str, list[_Block]], priorities: dict[str, set[int]]
    ) -> None:
        self._policy = policy
        self._runs = runs
        self._priorities = priorities

    @classmethod
    def of(cls, policy: Policy, entries: Iterable[Register]) -> Packed:
        """Entries of different keys, in any order."""
        by_source: dict[str, list[Register]] = {}
        for entry in entries:
            by_source.setdefault(entry[0][0][2], []).append(entry)
        runs = {
            source: _blocks(policy, source, sorted(some, key=policy.rank))
            for source, some in by_source.items()
        }
        return cls(policy, runs, {source: {e[0][0][0] for e in some} for source, some in by_source.items()})

    @classmethod
    def parse(cls, policy: Policy, runs: list[Run], data: memoryview) -> tuple[Packed, int]:
        """What `encode` wrote, and how many of the bytes it was. Raises ValueError for anything else."""
        place = 0
        found: dict[str, list[_Block]] = {}
        for source, _, rows in runs:
            blocks = found[source] = []
            for length, count, priority, ordinal, event_id, name, version in rows:
                first = Origin(Stamp(priority, ordinal, source, event_id), SpecRef(name, version))
                blocks.append(_Block(source, first, count, data[place : place + length]))
                place += length
        if place > len(data):
            raise ValueError("a block is interrupted")
        return cls(policy, found, {source: set(priorities) for source, priorities, _ in runs}), place

    def encode(self) -> tuple[list[Run], list[Bytes]]:
        """The runs, and the bytes of their blocks."""
        runs: list[Run] = []
        parts: list[Bytes] = []
        for source in sorted(self._runs):
            blocks = self._runs[source] = _settled(self._policy, self._runs[source])
            rows: list[Row] = []
            for block in blocks:
                if block.data is None:
                    block.data = _encode(block.read())
                (priority, ordinal, _, event_id), (name, version) = block.first
                rows.append((len(block.data), block.count, priority, ordinal, event_id, name, version))
                parts.append(block.data)
            runs.append((source, self._reported_priorities(source), rows))
        return runs, parts

    def __len__(self) -> int:
        return sum(self.counts().values())

    def __iter__(self) -> Iterator[Register]:
        for blocks in self._runs.values():
            for block in blocks:
                yield from block.read()

    def counts(self) -> dict[str, int]:
        """How many entries there are of each source."""
        return {source: sum(block.count for block in blocks) for source, blocks in self._runs.items()}

    def add(self, entry: Register) -> bool:
        """Join in one entry; gives whether that changed anything."""
        source = entry[0][0][2]
        blocks = self._runs.setdefault(source, [])
        present = self._find(entry)
        if present is not None:
            if later(present.entry, entry) is present.entry:
                return False
            present.block.change([each for each in present.block.read() if each is not present.entry])
            self._runs[source] = blocks = [block for block in blocks if block.count]
        if blocks:
            block = self._place(blocks, entry)
            entries = list(block.read())
            insort(entries, entry, key=self._policy.rank)
            block.change(entries)
        else:
            blocks.append(_Block(source, entry[0], 1, None, [entry]))
        self._priorities.setdefault(source, set()).add(entry[0][0][0])
        return True

    def drop(self, goes: Callable[[Origin], bool], source: str | None = None) -> None:
        """Take away entries by their origins, of one source or of all: always a beginning of each run."""
        for name in [source] if source is not None else list(self._runs):
            blocks = self._runs.get(name, [])
            while len(blocks) > 1 and goes(blocks[1].first):
                del blocks[0]
            if blocks and goes(blocks[0].first):
                blocks[0].change([entry for entry in blocks[0].read() if not goes(entry[0])])
            self._tidy(name)

    def keep_newest(self, bound: int) -> None:
        """Of each source, so many."""
        for source, count in self.counts().items():
            blocks, surplus = self._runs[source], count - bound
            while surplus > 0 and blocks[0].count <= surplus:
                surplus -= blocks.pop(0).count
            if surplus > 0:
                blocks[0].change(blocks[0].read()[surplus:])
            self._tidy(source)

    def _tidy(self, source: str) -> None:
        self._runs[source] = [block for block in self._runs.get(source, []) if block.count]
        if not self._runs[source]:
            del self._runs[source]

    def _place(self, blocks: list[_Block], entry: Register) -> _Block:
        at = max(bisect_right(blocks, entry[0], key=_first) - 1, 0)
        rank = self._policy.rank
        # Of one origin there may be more entries than one block has.
        while at and blocks[at].first == entry[0] and rank(blocks[at].read()[0]) > rank(entry):
            at -= 1
        return blocks[at]

    def _find(self, entry: Register) -> Found | None:
        """The entry with the same key."""
        lookup_key = self._policy.lookup_key(entry)
        return self._find_event(entry) if lookup_key is None else self._find_key(entry, lookup_key)

    def _find_key(self, entry: Register, lookup_key: bytes) -> Found | None:
        key = self._policy.key
        wanted = key(entry)
        for block in self._runs[entry[0][0][2]]:
            if block.data is None or lookup_key in bytes(block.data):
                for each in block.read():
                    if key(each) == wanted:
                        return Found(block, each)
        return None

    def _find_event(self, entry: Register) -> Found | None:
        # It may stand under another priority.
        _, ordinal, source, event_id = entry[0][0]
        blocks = self._runs[source]
        for priority in self._priorities.get(source, ()):
            stamp = Stamp(priority, ordinal, source, event_id)
            # Behind whatever spec's version: no event stands there twice.
            at = bisect_right(blocks, stamp, key=_first_stamp) - 1
            for block in blocks[max(at, 0) : at + 1]:
                for each in block.read():
                    if each[0][0] == stamp:
                        return Found(block, each)
        return None

    def _reported_priorities(self, source: str) -> list[int]:
        """Exactly those that occur, whatever was there before."""
        known = self._priorities[source]
        if len(known) > 1:
            # Sorted by priority first: those between two blocks of one priority are of it.
            blocks = self._runs[source]
            known = {block.first[0][0] for block in blocks}
            for block, following in zip(blocks, [*blocks[1:], None], strict=True):
                if following is None or block.first[0][0] != following.first[0][0]:
                    known.update(each[0][0][0] for each in block.read())
        return sorted(known)


def _settled(policy: Policy, blocks: list[_Block]) -> list[_Block]:
    """The same entries, with blocks that begin where they must."""
    settled: list[_Block] = []
    for block in blocks:
        if block.data is not None:
            settled.append(block)
            continue
        entries = block.read()
        if settled and not _begins(policy, entries[0]):
            entries = settled.pop().read() + entries
        settled += _blocks(policy, block.source, entries)
    return settled


def _blocks(policy: Policy, source: str, entries: list[Register]) -> list[_Block]:
    starts = [0, *(at for at in range(1, len(entries)) if _begins(policy, entries[at])), len(entries)]
    return [
        _Block(source, entries[start].origin, end - start, None, entries[start:end])
        for start, end in pairwise(starts)
    ]


def _begins(policy: Policy, entry: Register) -> bool:
    _, ordinal, _, event_id = entry[0][0]
    reported = crc32(b"%d %s" % (ordinal, event_id.encode()))
    if policy.shares_origins:
        reported = crc32(canonical.encode(entry[2]), reported)
    return reported % _MEAN_ENTRIES == 0


def _encode(entries: list[Register]) -> bytes:
    makers = sorted({_maker(entry[0]) for entry in entries})
    place = {maker: number for number, maker in enumerate(makers)}
    return canonical.encode(
        [
            makers,
            [
                (place[_maker(origin)], origin[0][1], origin[0][3], kind, value)
                for origin, kind, value in entries
            ],
        ]
    )


def _decode(source: str, data: Bytes) -> list[Register]:
    try:
        makers, entries = _decoder.decode(data)
        shared = [(priority, SpecRef(name, version)) for priority, name, version in makers]
        return [
            Register(
                Origin(Stamp(shared[maker][0], ordinal, source, event_id), shared[maker][1]),
                _KINDS[kind],
                value,
            )
            for maker, ordinal, event_id, kind, value in entries
        ]
    except (*canonical.MalformedJSON, LookupError, ValueError) as error:
        raise DamagedStateError(f"a fragment's stored state is damaged: {type(error).__name__}") from None


def _maker(origin: Origin) -> _Maker:
    (priority, _, _, _), (name, version) = origin
    return priority, name, version


def _first(block: _Block) -> Origin:
    return block.first


def _first_stamp(block: _Block) -> Stamp:
    return block.first[0]


_KINDS = tuple(Kind)
