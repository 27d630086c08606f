"""The ledgers of a partition: every entry is in exactly one range of one micro-batch, whatever the bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.pulsar import place, position
from idgraph.model.pulsar_ledgers import Ledgers, StoredLedger


def ledgers(*entries: int) -> Ledgers:
    """Ledgers 3, 6, 9, ... of so many entries of 100 bytes."""
    present = tuple(StoredLedger(3 * n, count, 100 * count) for n, count in enumerate(entries, 1))
    return Ledgers(present, position(present[-1].id, entries[-1]))


sizes = st.lists(st.integers(0, 30), min_size=1, max_size=5)


@given(sizes, st.integers(1, 2000), st.integers(1, 4))
def test_each_entry_is_read_once(entries: list[int], most_bytes: int, parts: int) -> None:
    found = ledgers(*entries)
    at = found.first
    read: list[int] = []
    while (until := found.after(at, most_bytes)) != at:
        assert found.stored_bytes(at, until) <= max(100, most_bytes)
        for begin, end in found.split(at, until, parts):
            assert place(begin)[0] == place(end)[0], "within one ledger"
            read += range(begin, end)
        at = until
    assert found.entries(at, found.end) == 0
    assert read == [position(each.id, n) for each in found.present for n in range(each.entries)]


@given(sizes, st.integers(0, 100))
def test_so_many_entries_before_the_end(entries: list[int], back: int) -> None:
    found = ledgers(*entries)
    assert found.entries(found.before(found.end, back), found.end) == min(back, sum(entries))


def test_a_closed_ledger_that_was_read_to_its_end_can_be_deleted() -> None:
    found = ledgers(5, 3)
    until = found.after(found.first, 500)
    assert until == position(6, 0)
    assert not Ledgers(found.present[1:], found.end).has_lost(until)
    assert Ledgers(found.present[1:], found.end).has_lost(position(3, 5)), "nobody knows whether it had more"


def test_the_end_of_the_open_ledger_is_not_passed() -> None:
    found = ledgers(5, 3)
    assert found.after(position(6, 3), 500) == position(6, 3)
    assert found._replace(end=position(6, 1)).after(found.first, 10_000) == position(6, 1)
