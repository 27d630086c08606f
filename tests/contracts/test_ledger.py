"""The promises of every store on its ledger (`idgraph.model.ledger.Ledger`)."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from idgraph.model.errors import QueryError
from idgraph.model.ledger import CHANGES, Crossing, LedgerEntry
from idgraph.model.store import NEW, Assignment, FragmentWrite, ProfileStore

IDS = [f"a:{number}" for number in range(4)]
JOINS = Assignment("a:1", 0, "a:0", "", 1_000)


@pytest.fixture
def filled(store: ProfileStore) -> ProfileStore:
    store.write([FragmentWrite(each, NEW, b"1", frozenset({each})) for each in IDS])
    return store


def named(
    store: ProfileStore, entries: Iterable[LedgerEntry | Crossing]
) -> list[tuple[int, str, int, str, str]]:
    """Entries with ids; of a fragment that is gone without."""
    found = [each for each in entries if isinstance(each, LedgerEntry)]
    ids = store.fragments_named({name for each in found for name in (each.fragment, *each[3:5])})

    def shown(name: bytes) -> str:
        return ids.get(name, "")

    return [
        (each.at_ms, shown(each.fragment), each.epoch, shown(each.previous), shown(each.profile))
        for each in found
    ]


def test_each_assignment_to_another_profile_leaves_an_entry(filled: ProfileStore) -> None:
    assert filled.ledger() == filled.ledger_of(IDS) == []
    assert filled.assign([JOINS, Assignment("a:0", 0, "", "", 1_000)]) == set()
    filled.assign([Assignment("a:1", 1, "a:2", "a:0", 2_000), Assignment("a:2", 0, "", "", 2_000)])
    filled.assign([Assignment("a:1", 2, "", "a:2", 3_000), Assignment("a:3", 0, "a:0", "", 3_001)])
    ledger = [
        (1_000, "a:1", 1, "a:1", "a:0"),
        (2_000, "a:1", 2, "a:0", "a:2"),
        (3_000, "a:1", 3, "a:2", "a:1"),
        (3_001, "a:3", 1, "a:3", "a:0"),
    ]
    assert named(filled, filled.ledger()) == ledger
    assert named(filled, filled.ledger_of(["a:1", "a:9"])) == ledger[:3]
    assert named(filled, filled.ledger_of(["a:0", "a:3"])) == ledger[3:]
    assert filled.ledger_of([]) == []


def test_what_is_refused_or_repeated_leaves_none(filled: ProfileStore) -> None:
    assert filled.assign([JOINS, Assignment("a:0", 0, "")]) == set()
    late = JOINS._replace(at_ms=2_000, profile_id="a:2")
    assert filled.assign([late, Assignment("a:9", 0, "a:0"), Assignment("a:0", 4, "a:1")]) == {
        "a:1",
        "a:9",
        "a:0",
    }
    assert filled.assign([JOINS]) == {"a:1"}
    assert named(filled, filled.ledger()) == [(1_000, "a:1", 1, "a:1", "a:0")]


def test_of_two_writers_one_leaves_an_entry(filled: ProfileStore) -> None:
    with ThreadPoolExecutor(2) as threads:
        for number in range(5):
            profiles = ["a:0", "a:2"]
            tried = [Assignment("a:1", number, each, "a:3", number) for each in profiles]
            refused = list(threads.map(lambda each: filled.assign([each]), tried))
            assert sorted(map(len, refused)) == [0, 1]
            assert filled.read(["a:1"])["a:1"].profile_id == profiles[refused.index(set())]
    assert [each.epoch for each in filled.ledger_of(["a:1"])] == [1, 2, 3, 4, 5]
    assert [each.epoch for each in filled.ledger() if isinstance(each, LedgerEntry)] == [1, 2, 3, 4, 5]


def test_a_reader_goes_on_behind_a_cursor(filled: ProfileStore) -> None:
    for number in range(12):
        filled.assign([Assignment(IDS[number % 4], number // 4, f"x:{number}", "a:9", number)])
    whole = filled.ledger()
    assert [each.at_ms for each in whole] == list(range(12))
    pages: list[LedgerEntry | Crossing] = []
    while page := filled.ledger(pages[-1].cursor if pages else "", limit=5):
        assert len(page) <= 5
        pages += page
    assert pages == whole
    filled.erase(IDS, 100)
    filled.finish(IDS)
    assert filled.ledger(whole[3].cursor, 2) == whole[4:6]
    for wrong in ("x", "-1", "\N{SUPERSCRIPT TWO}"):
        with pytest.raises(QueryError, match="no cursor"):
            filled.ledger(wrong)


def test_of_a_fragment_that_is_gone_only_the_name_is_left(filled: ProfileStore) -> None:
    filled.assign([JOINS, Assignment("a:0", 0, "", "", 1_000), Assignment("a:3", 0, "a:0", "", 1_001)])
    filled.erase(["a:1"], 2_000)
    filled.withdraw({"a:3": 2})
    assert named(filled, filled.ledger()) == [(1_000, "", 1, "", "a:0"), (1_001, "", 1, "", "a:0")]
    (entry,) = filled.ledger_of(["a:1"])
    assert (entry.at_ms, entry.epoch) == (1_000, 1)


def test_crossings_are_appended_once(filled: ProfileStore) -> None:
    first = [Crossing(1_000, each, "ä b", 1) for each in ("a:0", "a:1")]
    assert filled.crossed(IDS) == {}
    filled.cross(first)
    filled.cross(
        [first[1]._replace(at_ms=2_000), Crossing(2_001, "a:1", "ä b", 2), Crossing(2_002, "a:1", "c", 1)]
    )
    assert filled.crossed([*IDS, "a:9"]) == {"a:0": {"ä b": 1}, "a:1": {"ä b": 2, "c": 1}}
    filled.assign([JOINS._replace(at_ms=3_000)])
    found = filled.ledger()
    names = filled.fragments_named({each.profile for each in found if isinstance(each, Crossing)})  # type: ignore[misc]
    crossings = [(each.at_ms, names[each.profile], each.segment, each.number) for each in found[:-1]]  # type: ignore[union-attr,index]
    assert crossings == [
        (1_000, "a:0", "ä b", 1),
        (1_000, "a:1", "ä b", 1),
        (2_001, "a:1", "ä b", 2),
        (2_002, "a:1", "c", 1),
    ]
    assert isinstance(found[-1], LedgerEntry)
    assert [each.at_ms for each in filled.ledger(segment="ä b")] == [1_000, 1_000, 2_001]
    assert filled.ledger(found[1].cursor, 1, "ä b") == [found[2]]
    assert filled.ledger(found[1].cursor, 2) == found[2:4]
    assert len(filled.ledger_of(IDS)) == 1
    filled.cross([Crossing(4_000, "a:0", "c", 1, cause="merged")])
    causes = [each.cause for each in filled.ledger() if isinstance(each, Crossing)]
    assert causes == ["", "", "", "", "merged"]


def test_of_changes_in_a_segment_the_newest_is_behind_all(filled: ProfileStore) -> None:
    def changes(of: int, *numbers: int) -> list[Crossing]:
        return [Crossing(of * 200_000, f"a:{each}", f"s{CHANGES}", (1 << 40) + of) for each in numbers]

    filled.cross([Crossing(1, "a:0", "s", 1), *changes(1, 0, 1)])
    filled.cross([*changes(2, 0), Crossing(2, "a:0", "t", 1)])
    filled.cross(changes(1, 0, 1))
    filled.cross(changes(2, 0))
    filled.cross(changes(3, 2))
    numbers = {each: {f"s{CHANGES}": (1 << 40) + of} for each, of in {"a:0": 2, "a:1": 1, "a:2": 3}.items()}
    assert filled.crossed([*IDS, "a:9"]) == numbers | {"a:0": {"s": 1, "t": 1, **numbers["a:0"]}}
    found = [each for each in filled.ledger(segment="s") if isinstance(each, Crossing)]
    names = filled.fragments_named({each.profile for each in found})  # type: ignore[misc]
    newest = {(names[each.profile], each.kind): each.at_ms for each in found}  # type: ignore[index]
    assert newest == {
        ("a:0", "entered"): 1,
        ("a:1", "changed"): 200_000,
        ("a:0", "changed"): 400_000,
        ("a:2", "changed"): 600_000,
    }
    assert filled.ledger(segment="s", has_changes=False) == found[:1]
    assert [getattr(each, "segment", "") for each in filled.ledger(has_changes=False)] == ["s", "t"]
    assert [each.at_ms for each in found] == sorted(each.at_ms for each in found)
    assert filled.ledger(found[-2].cursor, 5, "s") == found[-1:]
    assert filled.ledger(found[0].cursor, 1, "s") == found[1:2]
    end = filled.ledger_end(found[0].cursor)
    assert filled.ledger(end) == []
    assert filled.ledger_end(end) >= end
