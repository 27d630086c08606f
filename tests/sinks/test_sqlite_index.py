"""What the SQLite index does beyond what every index promises: its segments, its files, and those of earlier forms."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.errors import ProfileIndexError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.queries import FullText, Prefix, Query, Range, Term
from idgraph.model.stamps import SpecRef, Stamp
from merge import codec
from merge.documents import EncodedFields
from merge.documents import document as document_of
from merge.fragments import FragmentState
from sinks.index_values import ORDERED_CHARACTERS, words
from sinks.memory.index import MemoryProfileIndex
from sinks.sqlite import schema as sqlite_schema
from sinks.sqlite.index import segments as sqlite_index_segments
from sinks.sqlite.index.index import SqliteProfileIndex
from sinks.sqlite.index.segments import FULL_BYTES, Segment, next_merge
from tests.lanes import examples

ROWS = "SELECT first, behind, documents, alive, bytes FROM segments ORDER BY first"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


def opened(path: Path) -> SqliteProfileIndex:
    return SqliteProfileIndex(path, lambda name: name[::-1].encode())


def segments(path: Path) -> list[Segment]:
    connection = sqlite3.connect(path)
    found = [Segment._make(row) for row in connection.execute(ROWS)]
    connection.close()
    return found


def stored(path: Path) -> bytes:
    """All that is in the file and its log."""
    return b"".join(each.read_bytes() for each in sorted(path.parent.glob("index.db*")))


@pytest.mark.parametrize("value", [[], [{"sku": 1}], [[]]])
def test_a_new_attribute_of_which_nothing_is_indexed_hides_no_profile(path: Path, value: Any) -> None:
    origin = Origin(Stamp(0, 1, "shop", "e1"), SpecRef("orders", 1))
    state = FragmentState()
    mutations = {"city": Register(origin, Kind.PLAIN, "Ulm"), "orders": Register(origin, Kind.PLAIN, value)}
    state.apply(FragmentChange("u:1", origin, mutations, (Identifier("u", "1"),), None))
    state.normalise()
    index = opened(path)
    assert (
        index.put([document_of("u:1", 1, FragmentState.checked(state.encode()), IndexRules(lambda _: True))])
        == {}
    )
    assert index.search(Query((Term("city", "Ulm"),))).ids == ["u:1"]


def test_a_damaged_state_is_refused_by_itself(path: Path) -> None:
    body = b'[[[0,1,"s","e","m",1]],{"a":[0,1,"x"],"b":[0,1,%b]},[],{}]'
    damaged, whole = (
        IndexDocument(name, 1, EncodedFields(codec.framed(body % value), lambda _: True))
        for name, value in (("damaged", b"nonsense"), ("whole", b'"y"'))
    )
    index = opened(path)
    assert "is damaged" in index.put([damaged, whole])["damaged"]
    assert index.search(Query((Term("b", "y"),))).ids == ["whole"]
    assert index.compare([damaged, whole]).keys() == {"whole"}
    # Where its paths are known as well.
    assert "is damaged" in index.put([damaged])["damaged"]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=400))
def test_segments_stay_few_and_nothing_is_written_often(sizes: list[int]) -> None:
    present: list[Segment] = []
    written = 0
    for size in sizes:
        first = present[-1].behind if present else 1
        present.append(Segment(first, first + size, size, size, 300 * size))
        while run := next_merge(present):
            place = present.index(run[0])
            assert present[place : place + len(run)] == run
            whole = sum(each.documents for each in run)
            present[place : place + len(run)] = [
                Segment(run[0].first, run[-1].behind, whole, whole, 300 * whole)
            ]
            written += whole
    assert sum(each.documents for each in present) == sum(sizes)
    open_ones = [each for each in present if each.weight < FULL_BYTES]
    assert len(open_ones) <= 70
    assert written <= 8 * sum(sizes)


def test_many_puts_become_few_segments_with_the_same_answers(path: Path) -> None:
    index = opened(path)
    for number in range(100):
        index.put([IndexDocument(f"d{number:02}", 1, {"n": number, "x": "word"})])
    assert len(segments(path)) < 20
    assert index.search(Query((FullText("word"),)), 1000).ids == [f"d{number:02}" for number in range(100)]
    assert index.search(Query((Range("n", 30, 31),))).ids == ["d30", "d31"]
    index.close()


def test_what_is_replaced_again_and_again_takes_no_more_room(path: Path) -> None:
    index = opened(path)
    for version in range(1, 60):
        index.put([IndexDocument(f"d{number}", version, {"x": f"v{version}"}) for number in range(50)])
    assert sum(each.documents for each in segments(path)) <= 2 * 50
    assert index.count(Query((Term("x", "v59"),))) == 50
    index.close()


@pytest.mark.parametrize("offset", [0, 1990])
def test_pages_of_many_matches_are_whole_wherever_they_stand(path: Path, offset: int) -> None:
    index = opened(path)
    index.put([IndexDocument(f"a{each:04}", 1, {"n": each, "x": "word"}) for each in range(4000)])
    matches = [f"a{each:04}" for each in range(4000) if each > offset]
    query = Query((Range("n", offset, include_lower=False),))
    found, page = [], index.search(query, 700)
    while page.cursor is not None:
        found += page.ids
        page = index.search(query, 700, page.cursor)
    assert found + page.ids == matches
    assert index.count(query) == len(matches)
    index.close()


def test_numbers_of_the_deleted_are_not_mistaken_for_those_of_the_new(path: Path) -> None:
    index = opened(path)
    index.put([IndexDocument("a", 1, {"x": "old"}), IndexDocument("b", 1, {"x": "old"})])
    index.erase({"b": 1})
    index.put([IndexDocument("c", 1, {"x": "new"})])
    assert index.search(Query((Term("x", "old"),))).ids == ["a"]
    index.erase({"a": 1, "c": 1})
    index.put([IndexDocument("d", 1, {"y": "new"})])
    index.put([IndexDocument("e", 1, {})])
    assert index.count(Query((Term("x", "old"),))) == index.count(Query((Term("x", "new"),))) == 0
    assert index.search(Query()).ids == ["d", "e"]
    index.close()


def test_nothing_deleted_is_left_in_the_file_once_it_is_compacted(path: Path) -> None:
    index = opened(path)
    names = {7: "qqqq", 8: "zzzz"}
    index.put([IndexDocument(f"d{each}", 1, {"x": names.get(each, f"value{each}")}) for each in range(300)])
    index.erase({"d7": 1})
    index.put([IndexDocument("d8", 2, {"x": "value8"})])
    assert b"qqqq" in stored(path)
    assert b"zzzz" in stored(path)
    index.compact()
    assert b"qqqq" not in stored(path)
    assert b"zzzz" not in stored(path)
    assert all(each.alive == each.documents for each in segments(path))
    assert index.count(Query((Prefix("x", "value"),))) == 299
    index.close()


def test_what_was_erased_does_not_reach_the_file_with_what_is_put_beside_it(path: Path) -> None:
    index = opened(path)
    index.put([IndexDocument("a", 1, {"x": "first"})])
    index.erase({"a": 5})
    index.put([IndexDocument("a", 5, {"x": "secret"}), IndexDocument("b", 1, {"x": "public"})])
    assert index.search(Query()).ids == ["b"]
    assert b"secret" not in stored(path)
    assert b"public" in stored(path)
    index.close()


def test_damage_is_reported(path: Path) -> None:
    index = opened(path)
    index.put([IndexDocument("a", 1, {"x": "word"})])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE blocks SET data = x'0505'")
    connection.commit()
    connection.close()
    with pytest.raises(ProfileIndexError, match="damaged block"):
        index.count(Query((FullText("word"),)))
    index.close()


# ---- files of the form before: tokens in a full-text table of SQLite's, and as text beside each document ----

BEFORE = (
    "CREATE TABLE documents (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, "
    "tokens TEXT NOT NULL)",
    "CREATE TABLE paths (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE)",
    "CREATE VIRTUAL TABLE words USING fts5(tokens, content='', detail=none, columnsize=0, tokenize='ascii')",
    "CREATE VIRTUAL TABLE vocabulary USING fts5vocab(words, instance)",
    "CREATE TABLE tombstones (name BLOB PRIMARY KEY, until INTEGER NOT NULL, version INTEGER NOT NULL) "
    "WITHOUT ROWID",
    "PRAGMA application_id = 1768187769",
    "PRAGMA user_version = 2",
)
PATHS = ["a", "ü.ß"]


def tokens_before(number: int, value: Any) -> list[str]:
    """Those of a path as idgraph wrote them."""
    if isinstance(value, bool):
        return [f"{number}\x83{value:d}"]
    if isinstance(value, str):
        key = value[:ORDERED_CHARACTERS].encode().hex()
        if len(value) > ORDERED_CHARACTERS:
            key += "\x90" + hashlib.sha256(value.encode()).hexdigest()
        return [f"{number}\x81{key}", *(f"{word}\x80{number}" for word in dict.fromkeys(words(value)))]
    if abs(value) >= 10**400:
        key = "1" + struct.pack(">d", math.inf).hex()
        return [f"{number}\x82{key}\x90{hashlib.sha256(f'{value:x}'.encode()).hexdigest()}"]
    bits = struct.pack(">d", value + 0.0)
    key = "1" + bits.hex() if value >= 0 else f"0{int.from_bytes(bits, 'big') ^ (1 << 64) - 1:016x}"
    # Between 2**53 and 2**54 doubles are two apart.
    return [
        f"{number}\x82{key}{int(value) - int(float(value)) + 2:01x}"
        if abs(value) >= 2**53
        else f"{number}\x82{key}"
    ]


def write_before(path: Path, documents: list[IndexDocument]) -> None:
    path.parent.mkdir(exist_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in BEFORE:
        connection.execute(statement)
    connection.executemany("INSERT INTO paths VALUES (?, ?)", enumerate(PATHS, 1))
    connection.execute("INSERT INTO tombstones VALUES (?, -1, 4)", (b"desare",))
    for place, document in enumerate(documents):
        lines = [
            " ".join(
                dict.fromkeys(
                    token
                    for each in (value if isinstance(value, list) else [value])
                    for token in tokens_before(PATHS.index(path) + 1, each)
                )
            )
            for path, value in document.fields.items()
        ]
        row = (2 * place + 3, document.id, document.version, "\n".join(filter(None, lines)))
        connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
        connection.execute("INSERT INTO words (rowid, tokens) VALUES (?, ?)", (row[0], row[3]))
    connection.close()


texts = st.sampled_from(["Zoë Müller", "zoe", "", "日本 語", "long " * 60, "long " * 60 + "x", "a\x00b"])
numbers = st.integers(-5, 5) | st.floats(-1e6, 1e6) | st.integers(2**53, 2**54 - 2) | st.just(10**400)
scalars = texts | numbers | st.booleans()
documents = st.lists(
    st.builds(
        IndexDocument,
        st.sampled_from("abcdefgh"),
        st.integers(1, 3),
        st.dictionaries(st.sampled_from(PATHS), scalars | st.lists(scalars, max_size=3)),
    ),
    unique_by=lambda each: each.id,
    max_size=8,
)


@settings(deadline=None, max_examples=examples(60))
@given(documents, documents)
def test_a_file_of_the_form_before_answers_as_one_of_now(
    tmp_path_factory: pytest.TempPathFactory, before: list[IndexDocument], later: list[IndexDocument]
) -> None:
    path = tmp_path_factory.mktemp("before") / "index.db"
    write_before(path, before)
    index, expected = opened(path), MemoryProfileIndex()
    expected.put(before)
    for batch in ([], later):
        assert index.put(batch) == expected.put(batch) == {}
        queries = [Query()]
        for place in PATHS:
            queries += [
                Query((Prefix(place, ""),)),
                Query((Range(place, -3, 2**53),)),
                Query((Range(place, "a"),)),
            ]
        for document in [*before, *later]:
            for place, value in document.fields.items():
                for each in value if isinstance(value, list) else [value]:
                    queries.append(Query((Term(place, each),)))
                    if isinstance(each, str):
                        queries += [Query((FullText(each),)), Query((FullText(each, place),))]
        for query in queries:
            assert index.search(query) == expected.search(query)
            assert index.count(query) == expected.count(query)
    # What was erased before stays so.
    index.put([IndexDocument("erased", 4, {"a": "back"})])
    assert index.versions(["erased"]).keys() == set()
    index.close()


def test_a_file_of_the_form_before_needs_an_sqlite_with_full_text(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_before(path, [IndexDocument("a", 1, {"a": 1})])
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "modules", lambda _: {"json_each"})
        index = opened(path)
        with pytest.raises(ProfileIndexError, match="without fts5"):
            index.count(Query())
        # A file of its own needs nothing.
        other = opened(path.with_name("other.db"))
        other.put([IndexDocument("a", 1, {"a": 1})])
        other.close()
    # Nothing was half done.
    assert index.count(Query((Term("a", 1),))) == 1
    index.close()


def test_an_index_of_many_documents_is_taken_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.sqlite.index.migration._AT_ONCE", 7)
    write_before(path, [IndexDocument(f"d{each:03}", 1, {"a": each}) for each in range(200)])
    index = opened(path)
    assert index.count(Query((Range("a", 20, 120),))) == 101
    assert len(segments(path)) < 20
    index.close()


def test_small_fan_in_and_small_blocks_change_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_index_segments, "FAN_IN", 2)
    monkeypatch.setattr(sqlite_index_segments, "FULL_BYTES", 2000)
    index, expected = opened(path), MemoryProfileIndex()
    for put in range(60):
        batch = [
            IndexDocument(f"d{(put * 7 + each) % 40}", put, {"n": put, "x": f"w{each} w{put % 5}"})
            for each in range(6)
        ]
        index.put(batch)
        expected.put(batch)
        gone = {f"d{put % 11}": put}
        assert index.erase(gone) == expected.erase(gone)
        for query in (Query((FullText(f"w{put % 7}"),)), Query((Range("n", put - 9),)), Query()):
            assert index.search(query, 100) == expected.search(query, 100)
    index.close()
