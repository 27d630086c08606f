"""A store that notes how much of it is asked for at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from idgraph.model.fragments import Kind, Register
from idgraph.model.store import NEW, FragmentWrite, SharedIdentifiers, StoredFragment
from tests.merge.test_commit import state
from tests.support.memory.profiles import MemoryProfileStore

HEAVY = 300_000
"""Bytes of a heavy fragment, of which a first page of unknown ones may have been made."""


class WeighedStore(MemoryProfileStore):
    """In memory; its fragments have one and the same state, which therefore is there once."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []
        self.bytes: list[int] = []

    def fill(self, number: int, size: int = 0) -> None:
        """So many fragments of about `size` bytes, which wait for the index."""
        first = state(1)
        first.registers["long"] = Register(first.registers["a"].origin, Kind.PLAIN, "x" * size)
        data = first.encode()
        ids = (f"p:{each:06}" for each in range(number))
        assert not self.write([FragmentWrite(each, NEW, data, frozenset()) for each in ids])

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        found = super().read(ids)
        self._note(len(ids), found.values())
        return found

    def read_with_shared(self, ids: Sequence[str]) -> tuple[dict[str, StoredFragment], SharedIdentifiers]:
        found, shared = super().read_with_shared(ids)
        self._note(len(ids), found.values())
        return found, shared

    def scan(self, after: str = "", limit: int = 1000) -> list[StoredFragment]:
        page = super().scan(after, limit)
        self._note(limit, page)
        return page

    def _note(self, count: int, given: Iterable[StoredFragment]) -> None:
        self.counts.append(count)
        self.bytes.append(sum(len(each.state) for each in given))
