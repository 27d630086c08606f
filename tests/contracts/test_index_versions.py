"""The promises of the versions of every index (`idgraph.model.index_versions.IndexVersions`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument, ProfileIndex
from idgraph.model.index_versions import IndexVersions, VersionState
from idgraph.model.queries import Query, Term
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from tests.contracts.implementations import (
    INDEX_VERSIONS,
    PROFILE_INDEXES,
    Implementation,
    hashed_name,
    reversed_name,
)
from tests.contracts.processes import kill, start


@dataclass
class Both:
    """An index, and its versions as another process sees them."""

    index: ProfileIndex
    versions: IndexVersions
    implementation: Implementation[IndexVersions]
    folder: Path

    def ids(self) -> list[str]:
        return self.index.search(Query(), 1000).ids

    def states(self) -> list[tuple[str, int]]:
        return [(each.state, each.documents) for each in self.versions.known()]

    def switch(self) -> str:
        return self.versions.switch()


@pytest.fixture(params=INDEX_VERSIONS, ids=str)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    implementation: Implementation[IndexVersions] = request.param
    of_index = next(each for each in PROFILE_INDEXES if each.name == implementation.name)
    with of_index.opened(tmp_path) as index, implementation.opened(tmp_path) as versions:
        yield Both(index, versions, implementation, tmp_path)


def document(name: str, version: int = 1, value: str = "word") -> IndexDocument:
    return IndexDocument(name, version, {"x": value})


def test_what_is_made_is_found_when_it_takes_the_place_and_not_before(both: Both) -> None:
    both.index.put([document("old")])
    before = both.versions.known()[0].name
    made = both.versions.begin().name
    assert made > before
    assert both.versions.put([document("a"), document("b", 3)]) == {}
    assert both.ids() == ["old"]
    assert [each.state for each in both.versions.known()] == [VersionState.IN_USE, VersionState.MADE]
    assert both.switch() == before
    assert both.ids() == ["a", "b"]
    assert both.states() == [(VersionState.IN_USE, 2)]
    both.index.put([document("c")])
    assert both.ids() == ["a", "b", "c"]


def test_an_index_is_another_one_once_a_version_has_taken_its_place(both: Both) -> None:
    before = both.index.identity()
    both.versions.begin()
    both.index.put([document("a")])
    assert both.index.identity() == before
    both.switch()
    after = both.index.identity()
    assert after
    assert before
    assert after != before
    kind = next(each for each in PROFILE_INDEXES if each.name == both.implementation.name)
    with kind.opened(both.folder) as again:
        assert again.identity() == after


def test_what_is_put_meanwhile_is_in_both(both: Both) -> None:
    both.index.put([document("a", 1), document("b", 1)])
    both.versions.begin()
    both.versions.put([document("a", 1), document("b", 1)])
    later = [document("a", 2, "later"), document("new", 1, "later")]
    both.index.put(later)
    assert both.index.count(Query((Term("x", "later"),))) == 2
    both.switch()
    assert both.index.versions(["a", "b", "new"]) == {"a": 2, "b": 1, "new": 1}
    assert both.index.search(Query((Term("x", "later"),))).ids == ["a", "new"]


def test_what_is_older_than_what_is_there_changes_nothing(both: Both) -> None:
    both.versions.begin()
    both.index.put([document("a", 5, "newer")])
    assert both.versions.put([document("a", 4, "older")]) == {}
    both.switch()
    assert both.index.search(Query((Term("x", "newer"),))).ids == ["a"]


def test_what_is_erased_meanwhile_stays_erased_whatever_comes_late(both: Both) -> None:
    both.index.put([document("a", 4), document("b", 4)])
    both.versions.begin()
    both.versions.put([document("a", 4)])
    assert both.index.erase({"a": 4, "b": 4}) == 2
    both.versions.put([document("a", 4), document("b", 3)])
    both.switch()
    both.index.put([document("a", 4)])
    assert both.ids() == []
    both.index.put([document("a", 5)])
    assert both.ids() == ["a"]


def test_what_was_erased_before_is_kept_out_by_its_tombstone(both: Both) -> None:
    name = reversed_name if both.implementation.in_files else hashed_name
    both.versions.begin()
    both.versions.write_tombstones(
        {name("gone"): Tombstone(NO_EPOCH, 4), name("back"): Tombstone(NO_EPOCH, 4)}
    )
    both.versions.put([document("gone", 4), document("back", 5)])
    both.switch()
    both.index.put([document("gone", 3)])
    assert both.ids() == ["back"]


def test_an_erasure_reaches_every_version(both: Both) -> None:
    both.index.put([document("a"), document("b")])
    both.versions.begin()
    both.versions.put([document("a"), document("b")])
    assert both.index.erase({"a": 1}) == 1
    assert both.states() == [(VersionState.IN_USE, 1), (VersionState.MADE, 1)]
    both.index.compact()
    assert both.states() == [(VersionState.IN_USE, 1), (VersionState.MADE, 1)]


def test_what_was_begun_is_gone_on_with_unless_anew(both: Both) -> None:
    both.versions.begin()
    both.versions.put([document("a")])
    both.index.put([document("b")])
    with both.implementation.opened(both.folder) as again:
        made = again.begin()
        assert made == both.versions.begin()
        again.put([document("c")])
        assert [each.documents for each in both.versions.known()] == [1, 3]
        assert again.begin(afresh=True).mark != made.mark
    assert both.states() == [(VersionState.IN_USE, 1), (VersionState.MADE, 0)]
    both.versions.begin()
    both.versions.put([document("d")])
    both.switch()
    assert both.ids() == ["d"]


def test_what_is_put_and_erased_between_two_runs_is_there(both: Both) -> None:
    both.versions.begin()
    both.index.put([document("a")])
    both.index.put([document("b")])
    both.index.erase({"b": 1})
    with both.implementation.opened(both.folder) as again:
        again.begin()
        again.switch()
    assert both.ids() == ["a"]


def test_a_run_whose_version_another_run_dropped_says_so(both: Both) -> None:
    both.index.put([document("a")])
    both.versions.begin()
    with both.implementation.opened(both.folder) as other:
        other.begin(afresh=True)
        other.switch()
    with pytest.raises(ProfileIndexError, match="again"):
        both.versions.put([document("a")])
    with pytest.raises(ProfileIndexError, match="again"):
        both.versions.switch()
    assert both.index.put([document("b")]) == {}
    assert both.ids() == ["b"]
    assert both.states() == [(VersionState.IN_USE, 1)]


_PUT_ON_AND_ON = """
import sys
from pathlib import Path
from idgraph.model.index import IndexDocument
from tests.contracts.implementations import PROFILE_INDEXES
index = next(each for each in PROFILE_INDEXES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
for number in range(10**6):
    assert index.put([IndexDocument(f"d{number % 97}", number + 1, {"x": number})]) == {}
    print(number + 1, flush=True)
"""


@pytest.mark.process
def test_nothing_is_lost_of_a_writer_that_knows_nothing_of_it(both: Both) -> None:
    """It continues writing while one version after the other takes the place of the one in use."""
    writer = start(_PUT_ON_AND_ON, both.implementation.name, both.folder)
    assert writer.stdout is not None
    confirmed = 0
    try:
        for _ in range(2):
            confirmed = int(writer.stdout.readline())
            both.versions.begin()

            # As the store would: what it has is never older than what was put into the index.
            newest = both.index.versions(both.ids())
            both.versions.put([IndexDocument(each, v, {"x": v - 1}) for each, v in newest.items()])
            both.versions.switch()
            confirmed = int(writer.stdout.readline())
    finally:
        rest = kill(writer)
    confirmed = max([confirmed, *(int(line) for line in rest if line.endswith("\n"))])
    expected: dict[str, int] = {}
    for number in range(confirmed):
        expected[f"d{number % 97}"] = number + 1
    # One more may have been put than was reported.
    found = both.index.versions(list(expected))
    assert {each: found.get(each, 0) for each, v in expected.items() if found.get(each, 0) < v} == {}
    for each, version in found.items():
        assert each in both.index.search(Query((Term("x", version - 1),))).ids
