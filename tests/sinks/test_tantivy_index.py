"""The embedded index: what its files hold, what a crash leaves, many attributes, and answers that stay the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument
from idgraph.model.index_versions import VersionState
from idgraph.model.queries import Exists, FullText, Order, Query, Range, Scalar, Term
from sinks.tantivy.folder import IndexFolder
from sinks.tantivy.index import TantivyProfileIndex
from sinks.tantivy.versions import TantivyIndexVersions
from tests.canaries import content_of, files_below, seen
from tests.contracts.implementations import hashed_name
from tests.contracts.processes import killed_after
from tests.index_words import versions_with

CANARY = "Zitronengelb-Kanarienvogel"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def index(folder: Path) -> Iterator[TantivyProfileIndex]:
    opened = TantivyProfileIndex(folder, hashed_name)
    yield opened
    opened.close()


def holding(folder: Path, text: str = CANARY) -> list[str]:
    """The versions and files that hold a text: as a word, as it is, in hexadecimal or in another form."""
    return [
        *versions_with(folder, text),
        *(p.name for p in files_below(folder) if seen(content_of(p), [text])),
    ]


def others(count: int = 20) -> list[IndexDocument]:
    return [IndexDocument(f"other:{each}", 1, {"x": f"word{each}", "n": each}) for each in range(count)]


@pytest.mark.parametrize("how", ["erased", "replaced", "same version"])
def test_nothing_of_what_went_is_left_in_a_file_once_it_is_compacted(
    index: TantivyProfileIndex, folder: Path, how: str
) -> None:
    index.put([IndexDocument("person:1", 2, {"x": CANARY, "l": [CANARY, 1]}), *others()])
    assert holding(folder), "a canary is looked for well"
    if how == "erased":
        index.erase({"person:1": 2})
    else:
        index.put([IndexDocument("person:1", 2 + (how == "replaced"), {"x": "sealed"})])
    before = {path.name for path in files_below(folder)}
    index.compact()
    assert holding(folder) == []
    kept = {path.name for path in files_below(folder)} & before
    assert kept <= {
        "lock",
        "versions.json",
        "meta.json",
        ".managed.json",
        ".tantivy-meta.lock",
        ".tantivy-writer.lock",
    }
    assert index.count(Query((Range("n"),))) == 20
    assert index.put([IndexDocument("person:1", 2, {"x": CANARY})]) == {}
    assert index.count(Query((FullText(CANARY),))) == (how == "same version")


def test_a_compacted_index_gives_the_same_answers(index: TantivyProfileIndex) -> None:
    fields: dict[str, Scalar | list[Scalar]] = {
        "large": 2**70 + 1,
        "huge": 10**400,
        "endless": float("-inf"),
        "list": [1, "1", True, float("inf"), 2.5],
        "date": "2020-01-02T03:04:05Z",
        "nul\0path": "x",
        "text": "Zoë \x00",
    }
    document = IndexDocument("a", 3, fields)
    index.put([document, IndexDocument("gone", 1, {"x": 1})])
    index.erase({"gone": 1})
    mark = index.identity()
    index.compact()
    assert index.identity() == mark
    assert index.compare([document])["a"].is_same
    for path, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            assert index.search(Query((Term(path, each),))).ids == ["a"]
    assert index.put([IndexDocument("gone", 1, {"x": 1})]) == {}
    assert index.search(Query()).ids == ["a"]


def test_an_index_without_leftovers_is_not_written_again(index: TantivyProfileIndex, folder: Path) -> None:
    index.put(others())
    before = sorted(path.name for path in folder.glob("index-*"))
    index.compact()
    assert sorted(path.name for path in folder.glob("index-*")) == before


def test_compacting_reaches_every_version(index: TantivyProfileIndex, folder: Path) -> None:
    person = IndexDocument("person:1", 1, {"x": CANARY})
    index.put([person, *others()])
    versions = TantivyIndexVersions(folder, hashed_name)
    begun = versions.begin()
    versions.put([person])
    index.erase({"person:1": 1})
    index.compact()
    assert holding(folder) == []
    assert [each.state for each in versions.known()] == [VersionState.IN_USE, VersionState.MADE]
    assert versions.begin() == begun
    versions.close()


_KILLED = """
import sys
from pathlib import Path
from idgraph.model.index import IndexDocument
from sinks.tantivy.index import TantivyProfileIndex
from sinks.tantivy.versions import TantivyIndexVersions
from tests.contracts.implementations import hashed_name
index = TantivyProfileIndex(Path(sys.argv[1]), hashed_name)
versions = TantivyIndexVersions(Path(sys.argv[1]), hashed_name)
print(0, flush=True)
for number in range(1, 1000):
    index.put([IndexDocument(f"d{number}", 1, {"x": sys.argv[2]})])
    index.erase({f"d{number}": 1})
    index.put([IndexDocument("kept", number, {"n": number})])
    index.compact()
    versions.begin(afresh=True)
    versions.put([IndexDocument("kept", number, {"n": number})])
    versions.switch()
    print(number, flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("pause", [0.0, 0.03, 0.06, 0.1, 0.15])
def test_a_crash_at_any_moment_loses_and_leaves_nothing(folder: Path, pause: float) -> None:
    """Between writing, erasing, compacting, and switching to another version."""
    with killed_after(_KILLED, folder, CANARY, lines=3, pause=pause) as printed:
        confirmed = int(printed[-1])
    index = TantivyProfileIndex(folder, hashed_name)
    assert index.versions(["kept"])["kept"] >= confirmed
    index.erase(dict.fromkeys(index.search(Query((FullText(CANARY),))).ids, 1))
    index.compact()
    assert holding(folder) == []
    assert index.search(Query()).ids == ["kept"]
    index.close()
    assert len(list(folder.glob("index-*"))) == len(IndexFolder(folder).versions())


def test_a_block_leaves_a_tombstone_of_what_was_never_there_only_where_a_reindex_may_put_it(
    index: TantivyProfileIndex, folder: Path
) -> None:
    index.put(others(1))
    versions = TantivyIndexVersions(folder, hashed_name)
    versions.begin()
    with index.writing():
        assert index.erase({"part:1": 3}) == 0
    written = [index.folder.open(each).searcher().num_docs for each in index.folder.versions()]
    assert written == [1, 1]
    # Read before it became a part of another profile.
    versions.put([IndexDocument("part:1", 3, {"x": 1})])
    versions.switch()
    assert index.count(Query()) == 0


def test_what_is_gone_is_not_erased_again(index: TantivyProfileIndex, folder: Path) -> None:
    index.put([IndexDocument("part:1", 1, {"x": 1})])
    with index.writing():
        assert index.erase({"part:1": 2}) == 1
    before = sorted(path.name for path in folder.rglob("*"))
    with index.writing():
        assert index.erase({"part:1": 5}) == 0
    assert sorted(path.name for path in folder.rglob("*")) == before
    index.put([IndexDocument("part:1", 6, {"x": 2})])
    assert index.search(Query()).ids == ["part:1"]


def test_ten_thousand_attributes_of_clashing_types(index: TantivyProfileIndex) -> None:
    chance = random.Random(5)
    values: list[Scalar] = ["text", "7", 7, 7.5, True, 2**65]
    documents = [
        IndexDocument(
            f"d{number:03}", 1, {f"p{chance.randrange(10_000)}": chance.choice(values) for _ in range(200)}
        )
        for number in range(100)
    ]
    for start in range(0, 100, 25):
        assert index.put(documents[start : start + 25]) == {}
    for path in [*documents[0].fields][:20]:
        having = [each.id for each in documents if path in each.fields]
        assert index.search(Query((Exists(path),)), 100).ids == having
        assert set(index.search(Query(), 100, None, Order(path)).ids[: len(having)]) == set(having)
        assert sum(each.profiles for each in index.facets(Query(), path)) == len(having)


def test_a_version_that_was_lost_is_reported_and_made_again(index: TantivyProfileIndex, folder: Path) -> None:
    index.put(others())
    (version,) = folder.glob("index-*")
    shutil.rmtree(version)
    other = TantivyProfileIndex(folder, hashed_name)
    for use in (lambda: other.count(Query()), lambda: other.put(others()), other.compact):
        with pytest.raises(ProfileIndexError, match="`idgraph reindex` makes it again"):
            use()
    versions = TantivyIndexVersions(folder, hashed_name)
    versions.begin()
    versions.put(others())
    versions.switch()
    assert other.count(Query()) == 20
    versions.close()
    other.close()


def test_the_folder_is_for_its_owner_only(index: TantivyProfileIndex, folder: Path) -> None:
    index.put(others())
    index.erase({"other:1": 1})
    index.compact()
    assert [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077] == []
