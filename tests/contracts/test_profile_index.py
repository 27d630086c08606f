"""The promises of every profile index (`idgraph.model.index.ProfileIndex`)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from idgraph.model.durations import TimeForm
from idgraph.model.errors import ProfileIndexError, QueryError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.index import IndexDocument, Indexed, IndexRules, ProfileIndex
from idgraph.model.queries import (
    All,
    AnyOf,
    Condition,
    Exists,
    FullText,
    Not,
    Order,
    Prefix,
    Query,
    Range,
    Relative,
    Term,
    absolute,
)
from idgraph.model.stamps import SpecRef, Stamp
from merge.documents import document
from merge.fragments import FragmentState
from sinks.elasticsearch.index import ElasticsearchProfileIndex
from sinks.index_values import cursor_of
from tests.contracts.conftest import long_on_servers
from tests.contracts.implementations import PROFILE_INDEXES, Implementation
from tests.contracts.processes import finish, killed_after, start
from tests.support.memory.index import MemoryProfileIndex

DURABLE = [each for each in PROFILE_INDEXES if each.durable]


@pytest.fixture(params=PROFILE_INDEXES, ids=str)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProfileIndex]:
    implementation: Implementation[ProfileIndex] = request.param
    with implementation.opened(tmp_path) as index:
        yield index


@pytest.fixture(params=DURABLE, ids=str)
def durable(request: pytest.FixtureRequest) -> Implementation[ProfileIndex]:
    implementation: Implementation[ProfileIndex] = request.param
    implementation.require()
    return implementation


GIVEN: WeakKeyDictionary[ProfileIndex, dict[str, IndexDocument]] = WeakKeyDictionary()


def put(index: ProfileIndex, **documents: dict[str, Any]) -> None:
    given = {each: IndexDocument(each, 1, fields) for each, fields in documents.items()}
    GIVEN.setdefault(index, {}).update(given)
    assert index.put(list(given.values())) == {}


def found(index: ProfileIndex, *clauses: Condition) -> list[str]:
    """Sorted ids of what matches."""
    query = Query(clauses)
    ids = index.search(query, 100).ids
    assert index.count(query) == len(ids)
    assert query.is_ranked or ids == sorted(ids)
    given = GIVEN.get(index, {})
    for name in index.versions(list(given)):
        assert index.matches(given[name], query) is (name in ids), name
    return sorted(ids)


def test_a_term_is_exact(index: ProfileIndex) -> None:
    put(index, a={"x": "Zoë"}, b={"x": "zoë"}, c={"x": "Zoë Müller"}, d={"y": "Zoë"})
    assert found(index, Term("x", "Zoë")) == ["a"]
    assert found(index, Term("x", "Zo")) == []
    assert found(index, Term("unknown", "Zoë")) == []


def test_a_moment_is_a_plain_range_as_of_now(index: ProfileIndex) -> None:
    put(
        index,
        a={"n": 1_774_000_000_000, "t": "2026-03-20T09:46:40Z", "d": "2026-03-20"},
        b={"n": 1_774_000_000_001, "t": "2026-03-20T09:46:40.001Z", "d": "2026-03-21"},
        c={"n": 1_774_000_001_000.5, "t": "2026-03-20T09:46:41Z", "d": "2026-02-28"},
        d={"n": "2026-03-20", "t": "2026-03-20", "d": ["2026-03-19", "2030-01-01"]},
        e={"n": True, "t": 1_774_000_000_000},
    )
    times: dict[str, TimeForm] = {"t": "rfc3339", "d": "date"}

    def as_of(now: int, clause: Relative) -> list[str]:
        return found(index, *absolute(Query((clause,)), now, times).clauses)

    now = 1_774_000_000_000
    for later in (0, 5 * 86_400_000):
        assert as_of(now + later, Relative("n", upper=f"now-{later // 1000}s")) == ["a"]
    assert as_of(now, Relative("n", upper="now", include_upper=False)) == []
    assert as_of(now + 1, Relative("n", upper="now")) == ["a", "b"]
    assert as_of(now, Relative("t", upper="now")) == ["a", "b", "d"]
    assert as_of(now, Relative("t", lower="now")) == ["a", "b", "c"]
    assert as_of(now, Relative("t", lower="now", include_lower=False)) == ["c"]
    assert as_of(now, Relative("t", "today", "today+1d", include_upper=False)) == ["a", "b", "c", "d"]
    assert as_of(now, Relative("d", "today", "today+1d", include_upper=False)) == ["a"]
    assert as_of(now, Relative("d", "today@Pacific/Auckland", include_lower=False)) == ["b", "d"]
    assert as_of(now, Relative("d", upper="today-1d")) == ["c", "d"]


def test_a_document_of_a_states_bytes_is_the_same_as_its_fields(index: ProfileIndex) -> None:
    origin = Origin(Stamp(0, 1, "shop", "e"), SpecRef("s", 1))
    values: dict[str, Any] = {
        "age": 37,
        "name": "Zoë M-1",
        "city": "Unna",
        "price": 12.5,
        "is": True,
        "no": [1, "b"],
    }
    state = FragmentState()
    for path, value in values.items():
        state.registers[path] = Register(origin, Kind.PLAIN, value)
    state.registers["mail"] = Register(origin, Kind.SEALED, "AAAA.token")
    state.registers["gone"] = Register(origin, Kind.DELETED, None)
    rules = IndexRules(lambda path: path != "city")
    given = [document("a", 1, FragmentState.checked(state.encode()), rules)]
    del values["city"]
    values["mail"] = "token"
    assert index.put(given) == {}
    assert index.compare([IndexDocument("a", 1, values)]) == {"a": Indexed(1, True)}
    assert index.compare(given) == {"a": Indexed(1, True)}
    assert index.compare([IndexDocument("a", 1, values | {"age": 38})]) == {"a": Indexed(1, False)}
    assert found(index, Term("mail", "token"), FullText("zoe"), Range("age", 37, 37)) == ["a"]
    assert found(index, FullText("unna")) == []


def test_the_order_of_matches_in_one_attribute_tells_nothing_of_others(index: ProfileIndex) -> None:
    hidden = {"few": "long text of other words that stand here", "many": "guitar guitar guitar"}
    kinds = ("few", "few", "many", "few", "many", "many", "few", "many", "many", "few", "many", "few")
    put(
        index,
        **{
            f"p{number:02}_{kind}": {"seen": "guitar", "hidden": hidden[kind]}
            for number, kind in enumerate(kinds)
        },
    )
    put(index, n={"seen": "piano", "hidden": "guitar"}, o={"seen": "guita", "hidden": "x"})
    word = FullText("guitar", "seen")
    for query in (Query((word,)), Query((AnyOf((word, FullText("no", "seen"))),))):
        ids = index.search(query).ids
        assert len(ids) == len(kinds)
        # All match alike, so their order is that of nothing that is hidden.
        assert {each.partition("_")[2] for each in ids[: len(ids) // 2]} == {"few", "many"}


def test_leaves_of_objects_in_arrays_are_found(index: ProfileIndex) -> None:
    origin = Origin(Stamp(0, 1, "shop", "e"), SpecRef("s", 1))
    given = []
    for name, lines in {
        "a": [{"sku": "A1", "price": 5}, {"sku": "A2"}],
        "b": [{"sku": "B1", "note": "by night"}],
    }.items():
        state = FragmentState()
        state.registers["p.lines"] = Register(origin, Kind.PLAIN, lines)
        given.append(document(name, 1, FragmentState.checked(state.encode()), IndexRules(lambda _: True)))
    put(index, **{each.id: dict(each.fields) for each in given})
    assert found(index, Term("p.lines.sku", "A1")) == ["a"]
    assert found(index, Exists("p.lines")) == ["a", "b"]
    assert found(index, FullText("A2")) == found(index, FullText("a2", "p.lines.sku")) == ["a"]
    assert found(index, FullText("night", "p.lines")) == found(index, Exists("p.lines.note")) == ["b"]
    assert found(index, Range("p.lines.price", 3, 9)) == ["a"]
    assert index.facets(Query(), "p.lines.sku")[0].profiles == 1


TEXTS = {
    "a": "東京都渋谷区",
    "b": "渋谷で iPhone手机 を買う",
    "c": "สวัสดีชาวโลก",
    "d": "서울에서 Zoë",
    "e": "Tokyo",
}


@pytest.mark.parametrize("path", [None, "x"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("東京", "a"),
        ("渋谷", "ab"),
        ("京", "a"),
        ("京東", ""),
        ("東京都渋谷区", "a"),
        ("手机", "b"),
        ("iphone手机", "b"),
        ("iphone", "b"),
        ("โลก", "c"),
        ("서울", "d"),
        ("서울 zoe", "d"),
        ("tokyo", "e"),
    ],
)
def test_words_are_found_within_texts_without_blanks(
    index: ProfileIndex, words: str, path: str | None, expected: str
) -> None:
    put(index, **{name: {"x": text} for name, text in TEXTS.items()})
    assert found(index, FullText(words, path)) == list(expected)
    beginning = found(index, FullText(words[:-1] or words, path, is_prefix=True))
    assert set(expected) <= set(beginning)


def test_texts_without_blanks_sort_and_count_as_they_are(index: ProfileIndex) -> None:
    texts = {"a": "東京都", "b": "東京", "c": "東", "d": "渋谷", "e": "z"}
    odd = {"f": "東京\0x", "g": "a\0b", "h": "2024-01-01T00:00:00Z 東"}
    put(index, **{name: {"x": text} for name, text in texts.items()})
    assert index.search(Query(), order=Order("x")).ids == sorted(texts, key=lambda name: texts[name])
    put(index, **{name: {"x": text} for name, text in odd.items()})
    assert {each.value for each in index.facets(Query(), "x", 50)} == {*texts.values(), *odd.values()}
    assert found(index, Term("x", "東京")) == ["b"]
    assert found(index, Prefix("x", "東京")) == ["a", "b", "f"]


def test_types_never_meet(index: ProfileIndex) -> None:
    put(index, text={"x": "1"}, number={"x": 1}, double={"x": 1.0}, truth={"x": True}, word={"x": "true"})
    assert found(index, Term("x", "1")) == ["text"]
    assert found(index, Term("x", 1)) == ["double", "number"]
    assert found(index, Term("x", True)) == ["truth"]
    assert found(index, Range("x", 0, 5)) == ["double", "number"]
    assert found(index, Range("x", "0", "5")) == ["text"]
    assert found(index, Range("x", "0", 5)) == []
    assert found(index, Range("x", 0)) == ["double", "number"]
    assert found(index, Range("x", "")) == ["text", "word"]
    assert found(index, Range("x", upper="2")) == ["text"]
    assert found(index, Range("x")) == ["double", "number", "text", "word"]
    assert found(index, Prefix("x", "")) == ["text", "word"]


def test_an_array_has_each_of_its_elements(index: ProfileIndex) -> None:
    put(index, a={"x": ["red", 5, True, "green"]}, b={"x": []})
    for clause in (Term("x", "red"), Term("x", 5), Term("x", True), Prefix("x", "gr"), Range("x", 4, 6)):
        assert found(index, clause) == ["a"]
    assert found(index, FullText("green red", "x")) == ["a"]
    assert found(index) == ["a", "b"]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (Range("n", 1, 3), ["n1", "n2", "n3"]),
        (Range("n", 1, 3, include_lower=False), ["n2", "n3"]),
        (Range("n", 1, 3, include_upper=False), ["n1", "n2"]),
        (Range("n", 1.5), ["n2", "n3"]),
        (Range("n", None, 0), ["m1", "m2", "n0"]),
        (Range("n", -1, 0.5), ["m1", "n0"]),
        (Range("n", 3, 1), []),
        (Range("n", float("nan"), 3), []),
        (Range("n", float("-inf"), float("inf")), ["m1", "m2", "n0", "n1", "n2", "n3"]),
    ],
)
def test_ranges_of_numbers(index: ProfileIndex, clause: Range, expected: list[str]) -> None:
    put(index, n0={"n": 0}, n1={"n": 1}, n2={"n": 2.0}, n3={"n": 3}, m1={"n": -1}, m2={"n": -2.5})
    assert found(index, clause) == expected


def test_ranges_of_strings_go_by_code_point(index: ProfileIndex) -> None:
    put(
        index,
        a={"x": "Z"},
        b={"x": "a"},
        c={"x": "ab"},
        d={"x": "é"},
        e={"x": "\ufffd"},
        f={"x": "\U0001f600"},
    )
    assert found(index, Range("x", "a", "é")) == ["b", "c", "d"]
    assert found(index, Range("x", "a", "é", include_lower=False, include_upper=False)) == ["c"]
    assert found(index, Range("x", "\ufffd", include_lower=False)) == ["f"]


def test_numbers_beyond_64_bits_are_exact(index: ProfileIndex) -> None:
    large = 2**70
    put(index, a={"n": large}, b={"n": large + 1}, c={"n": -large}, d={"n": 2**53 + 1}, e={"n": 10**400})
    assert found(index, Term("n", large)) == found(index, Term("n", float(large))) == ["a"]
    assert found(index, Term("n", large + 1)) == ["b"]
    assert found(index, Term("n", 2**53)) == []
    assert found(index, Range("n", large, include_lower=False)) == ["b", "e"]
    assert found(index, Range("n", None, 2**53)) == ["c"]


def test_numbers_beyond_a_doubles_range_are_exact_and_in_ranges_infinite(index: ProfileIndex) -> None:
    beyond, fraction = 10**400, Decimal("1" * 400 + ".5")
    put(
        index,
        a={"n": beyond},
        b={"n": Decimal("1e400")},
        c={"n": beyond + 1},
        d={"n": -beyond},
        e={"n": fraction},
    )
    put(index, f={"n": float("inf")}, g={"n": 1e308})
    assert found(index, Term("n", beyond)) == ["a", "b"]
    assert found(index, Term("n", beyond + 1)) == ["c"]
    assert found(index, Term("n", -beyond)) == ["d"]
    assert found(index, Term("n", float("inf"))) == ["f"]
    assert found(index, Range("n", 1e308)) == ["a", "b", "c", "e", "f", "g"]
    assert found(index, Range("n", 1e308, include_lower=False)) == ["a", "b", "c", "e", "f"]
    assert found(index, Range("n", None, 1e308)) == ["d", "g"]
    assert (
        found(index, Range("n", beyond)) == found(index, Range("n", beyond + 1)) == ["a", "b", "c", "e", "f"]
    )
    assert found(index, Range("n", beyond, include_lower=False)) == []
    assert found(index, Range("n", None, -beyond)) == ["d"]
    assert found(index, Range("n", None, -beyond, include_upper=False)) == []
    assert len(found(index, Range("n", -beyond, beyond))) == 7


def test_decimals_and_odd_floats_break_nothing(index: ProfileIndex) -> None:
    put(index, a={"n": Decimal("1.5")}, b={"n": Decimal(7)}, c={"n": float("nan")}, d={"n": float("inf")})
    assert found(index, Range("n", 1, 7)) == ["a", "b"]
    assert found(index, Term("n", 1.5)) == ["a"]
    assert found(index, Term("n", float("nan"))) == []
    assert found(index, Term("n", float("inf"))) == ["d"]
    assert len(found(index)) == 4


def test_prefixes_are_exact_too(index: ProfileIndex) -> None:
    put(index, a={"x": "San José"}, b={"x": "san jose"}, c={"x": "San"}, d={"x": "100%"}, e={"x": "1000"})
    assert found(index, Prefix("x", "San")) == ["a", "c"]
    assert found(index, Prefix("x", "San Jos")) == ["a"]
    assert found(index, Prefix("x", "100%")) == ["d"]


def test_full_text_knows_no_case_and_no_accents(index: ProfileIndex) -> None:
    put(index, a={"x": "Zoë MÜLLER-Straße, 480"}, b={"x": "zoe"}, c={"y": "müller Zoe"})
    assert found(index, FullText("zoe")) == ["a", "b", "c"]
    assert found(index, FullText("ZOË muller")) == ["a", "c"]
    assert found(index, FullText("STRASSE 480")) == ["a"]
    assert found(index, FullText("zoe", "y")) == ["c"]
    assert found(index, FullText("zo")) == []


def test_words_may_be_mistyped(index: ProfileIndex) -> None:
    if isinstance(index, ElasticsearchProfileIndex):
        with pytest.raises(QueryError, match="mistyped"):
            index.search(Query((FullText("johnson", "x", edits=1),)))
        return
    put(
        index,
        a={"x": "Johnson"},
        b={"x": "Jonson", "y": "johnsen"},
        c={"x": ["Janson", "480"]},
        d={"z": "johnson"},
    )
    assert found(index, FullText("johnson", "x", edits=1)) == ["a", "b"]
    assert found(index, FullText("Jonhson", "x", edits=1)) == ["a", "b"], "neighbours that change places"
    assert found(index, FullText("johnson", "x", edits=2)) == ["a", "b", "c"]
    assert found(index, FullText("johnson", "x")) == ["a"]
    assert found(index, FullText("johnson 481", "x", edits=2)) == ["c"]
    assert found(index, FullText("johnson", edits=1)) == ["a", "b", "d"]
    assert found(index, Not(FullText("johnson", "x", edits=1))) == ["c", "d"]


def test_all_words_must_stand_in_the_attribute_or_anywhere(index: ProfileIndex) -> None:
    put(index, a={"first": "Ada", "last": "Lovelace"}, b={"first": "Ada Lovelace"})
    assert found(index, FullText("lovelace ada")) == ["a", "b"]
    assert found(index, FullText("lovelace ada", "first")) == ["b"]


@pytest.mark.parametrize(
    "text",
    ['"', "a AND", "x:ada", "ada*", "^ada", "(ada", "NEAR(ada b)", "ada - ada", "{x}: ada", "'; DROP", "\0"],
)
def test_what_users_type_is_words_and_never_syntax(index: ProfileIndex, text: str) -> None:
    put(index, a={"x": "ada"}, b={"x": text})
    has_words = any(character.isalnum() for character in text)
    assert ("b" in found(index, FullText(text))) == has_words
    assert "b" in found(index, Term("x", text))
    assert "b" in found(index, Prefix("x", text))


def test_words_of_ids_are_found_in_their_attribute(index: ProfileIndex) -> None:
    number = "7c6e7bc3-94CC-4147-bd01-e7ecf04cf834"
    digest = "d41d8cd98f00b204e9800998ecf8427e"
    put(
        index,
        a={"x": number},
        b={"x": [number, "x y"]},
        c={"x": digest, "y": "4147"},
        d={"y": [number, digest]},
    )
    for text in (number, "4147", "94cc 7C6E7BC3"):
        assert found(index, FullText(text, "x")) == ["a", "b"]
    assert found(index, FullText("4147", "y")) == ["c", "d"]
    assert found(index, FullText("4147 y", "x")) == ["b"]
    assert found(index, FullText("414", "x", is_prefix=True)) == ["a", "b"]
    assert found(index, FullText(digest, "x")) == ["c"]
    either = AnyOf(
        (FullText("4147", "x"), FullText("4147", "y"), FullText("d41d8cd98f00b204e9800998ecf8427e", "x"))
    )
    assert set(found(index, either)) == {"a", "b", "c", "d"}
    assert found(index, AnyOf((FullText("bd01", "z"), FullText("bd01", "y")))) == ["d"]


def test_no_words_find_nothing(index: ProfileIndex) -> None:
    put(index, a={"x": "..."})
    assert found(index, FullText("")) == found(index, FullText("...", "x")) == []


def test_many_words(index: ProfileIndex) -> None:
    text = " ".join(f"w{number}" for number in range(700))
    put(index, a={"x": text}, b={"x": "w1 w2"})
    assert found(index, FullText(text)) == ["a"]


def test_a_word_in_any_of_thousands_of_attributes(index: ProfileIndex) -> None:
    put(index, a={"p7": "admin"}, b={"p2999": "the admin"}, c={"q": "admin"}, d={"p1": "other"})
    places = AnyOf(tuple(FullText("admin", f"p{number}") for number in range(3000)))
    assert found(index, places) == ["a", "b"]


def test_all_clauses_hold(index: ProfileIndex) -> None:
    put(index, a={"x": "red", "n": 1}, b={"x": "red", "n": 2}, c={"x": "blue", "n": 2})
    assert found(index, Term("x", "red"), Range("n", 2)) == ["b"]
    assert found(index, FullText("red"), Term("n", 1), Prefix("x", "r")) == ["a"]
    assert found(index, Range("n", 2), Range("n", None, 1)) == []
    assert found(index) == ["a", "b", "c"]


def test_long_values_are_terms_and_full_text(index: ProfileIndex) -> None:
    long = "x" * 300 + " word "
    put(index, a={"x": long + "a"}, b={"x": long + "b"}, c={"x": "beginning " + "y" * 100_000 + " end"})
    assert found(index, Term("x", long + "a")) == ["a"]
    assert found(index, Prefix("x", "x" * 200)) == ["a", "b"]
    assert found(index, FullText("word")) == ["a", "b"]
    assert found(index, FullText("beginning")) == ["c"]


def test_a_newer_version_replaces_whole_and_a_stale_one_does_nothing(index: ProfileIndex) -> None:
    index.put([IndexDocument("a", 5, {"x": "old", "y": "keep"})])
    index.put([IndexDocument("a", 6, {"x": "new", "z": "keep"})])
    assert index.put([IndexDocument("a", 5, {"x": "stale"})]) == {}
    assert found(index, Term("x", "new")) == found(index, FullText("keep")) == ["a"]
    for gone in (
        Term("x", "old"),
        Term("y", "keep"),
        Term("x", "stale"),
        FullText("old"),
        FullText("keep", "y"),
    ):
        assert found(index, gone) == []


def test_the_same_version_again_is_what_was_put_last(index: ProfileIndex) -> None:
    # A change of policy indexes the same profile again, with fewer attributes.
    index.put([IndexDocument("a", 5, {"x": "public", "y": "secret"})])
    index.put([IndexDocument("a", 5, {"x": "public"})])
    index.put([IndexDocument("a", 5, {"x": "public"})])
    assert found(index, FullText("public")) == ["a"]
    assert found(index, FullText("secret")) == []


def test_a_batch_may_hold_a_document_twice(index: ProfileIndex) -> None:
    index.put([IndexDocument("a", 2, {"x": "two"}), IndexDocument("a", 1, {"x": "one"})])
    assert found(index, Term("x", "two")) == ["a"]


def test_a_bad_document_does_not_hold_the_others(index: ProfileIndex) -> None:
    bad: Any = {"x": {"nested": "value-of-x"}}
    documents = [
        IndexDocument("a", 1, {"x": 1}),
        IndexDocument("b", 1, bad),
        IndexDocument("c", 1, {"x": "\ud800"}),
        IndexDocument("d", 1, {"x": 1}),
        IndexDocument("e", 1, {"path \ud800": 1}),
    ]
    refused = index.put(documents)
    assert refused.keys() == {"b", "c", "e"}
    assert refused["b"].startswith("x: ")
    assert "value-of-x" not in refused["b"]
    assert found(index, Term("x", 1)) == ["a", "d"]


def test_an_erased_document_does_not_come_back_and_a_newer_one_does(index: ProfileIndex) -> None:
    index.put([IndexDocument("a", 5, {"x": "word"}), IndexDocument("b", 5, {"x": "word"})])
    assert index.versions(["a", "b", "c"]).keys() == {"a", "b"}
    assert index.erase({"a": 5, "c": 3}) == 1
    assert index.erase({}) == 0
    # Whoever read it before the erasure puts it after.
    assert index.put([IndexDocument("a", 5, {"x": "word"}), IndexDocument("c", 3, {"x": "word"})]) == {}
    assert found(index, FullText("word")) == found(index) == ["b"]
    index.put([IndexDocument("a", 6, {"x": "again"})])
    assert found(index, FullText("again")) == ["a"]
    assert found(index, Term("x", "word")) == ["b"]
    # An erasure that was interrupted and continues leaves the newer one.
    assert index.erase({"a": 5}) == 0
    # Of a version that was never there, as when a fragment that was never indexed is gone.
    assert index.erase({"a": 7, "b": 4}) == 1
    assert index.versions(["a", "b"]).keys() == {"b"}
    index.compact()
    assert found(index) == ["b"]


def test_pages_are_sorted_and_whole(index: ProfileIndex) -> None:
    ids = sorted([*(f"id:{number}" for number in range(45)), "quote:'\"", "é", "\ufffd", "\U0001f600"])
    index.put([IndexDocument(each, 1, {"x": "word", "n": 1}) for each in reversed(ids)])
    for query in (Query(), Query((FullText("word"),)), Query((Range("n", 0),))):
        page = index.search(query, 10)
        seen = page.ids
        while page.cursor is not None:
            page = index.search(query, 10, page.cursor)
            assert 0 < len(page.ids) <= 10
            seen = seen + page.ids
        assert (sorted(seen) if query.is_ranked else seen) == ids


@pytest.mark.parametrize("place", [10**12, -1, 2**62, "x", {}, None, [1], True])
def test_a_place_that_somebody_made_is_refused_or_empty(index: ProfileIndex, place: Any) -> None:
    """Found by review: a large one ended the process."""
    for kind, query in (("ranked", Query((FullText("x"),))), ("by id", Query())):
        with suppress(QueryError):
            assert index.search(query, 10, cursor_of([kind, place])).ids == []


@pytest.mark.parametrize("cursor", ["", "x", "aWQ6MQ==", "é", "AAAA", "' OR 1"])
def test_a_foreign_cursor_is_refused(index: ProfileIndex, cursor: str) -> None:
    with pytest.raises(QueryError):
        index.search(Query(), 10, cursor)


@pytest.mark.parametrize(
    "clause",
    [
        Term("t", "a\ud800"),
        Prefix("t", "\ud800"),
        Range("t", "\ud800"),
        FullText("\ud800"),
        Term("\ud800", 1),
    ],
)
def test_text_that_no_document_can_hold_is_refused(index: ProfileIndex, clause: Condition) -> None:
    with pytest.raises(QueryError, match="not valid Unicode"):
        index.search(Query((clause,)))
    with pytest.raises(QueryError):
        index.count(Query((clause,)))


def test_odd_paths(index: ProfileIndex) -> None:
    paths = ["a\\.b", "a.b", "ü", "with space", "quote'\"", "p" * 1024]
    put(index, a=dict.fromkeys(paths, "word"))
    for path in paths:
        assert found(index, Term(path, "word")) == found(index, FullText("word", path)) == ["a"]


def test_a_thousand_attributes(index: ProfileIndex) -> None:
    put(index, a={f"p{number}": number for number in range(1000)})
    assert found(index, Term("p999", 999)) == ["a"]


def test_threads_put_at_once(index: ProfileIndex) -> None:
    def work(worker: int) -> None:
        for number in range(20):
            index.put(
                [IndexDocument(f"{number}", worker * 100 + number, {"worker": worker, f"own{worker}": 1})]
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert index.count(Query((Term("worker", 3),))) == 20
    assert index.count(Query((Range("worker"),))) == 20


def test_a_closed_index_says_so(index: ProfileIndex) -> None:
    index.close()
    index.close()
    for use in (
        lambda: index.put([IndexDocument("a", 1, {"x": 1})]),
        lambda: index.erase({"a": 1}),
        lambda: index.versions(["a"]),
        index.compact,
        lambda: index.search(Query()),
        lambda: index.count(Query()),
        index.identity,
    ):
        with pytest.raises(ProfileIndexError, match="closed"):
            use()


def test_a_thread_that_writes_may_enter_again(index: ProfileIndex) -> None:
    with index.writing(), index.writing():
        put(index, a={"x": "word"})
        assert index.erase({"a": 1}) == 1
        put(index, b={"x": "word"})
    assert found(index) == ["b"]


def test_what_a_block_writes_twice_is_there_once(index: ProfileIndex) -> None:
    with index.writing():
        index.put([IndexDocument("a", 2, {"x": "second"}), IndexDocument("b", 1, {"x": "first"})])
        index.put([IndexDocument("a", 1, {"x": "late"}), IndexDocument("b", 1, {"x": "again"})])
        index.put([IndexDocument("c", 1, {"x": "word"})])
        assert index.erase({"c": 1}) == 1
        index.put([IndexDocument("c", 1, {"x": "late"})])
    assert index.versions(["a", "b", "c"]) == {"a": 2, "b": 1}
    assert [found(index, Term("x", each)) for each in ("second", "again", "first", "late")] == [
        ["a"],
        ["b"],
        [],
        [],
    ]


def test_a_block_that_fails_writes_nothing(durable: Implementation[ProfileIndex], tmp_path: Path) -> None:
    if not durable.in_files:
        pytest.skip("each put is a commit")
    with durable.opened(tmp_path) as index:
        put(index, a={"x": "before"})
        with suppress(ZeroDivisionError), index.writing():
            index.put([IndexDocument("a", 9, {"x": "after"}), IndexDocument("b", 1, {"x": "after"})])
            raise ZeroDivisionError
        assert found(index, Term("x", "after")) == []
        put(index, c={"x": "after"})
        assert found(index) == ["a", "c"]


def test_blocks_of_one_that_stays_open_commit_each_by_itself(
    durable: Implementation[ProfileIndex], tmp_path: Path
) -> None:
    """Found by other processes at once; one that fails is like one that never was. Many commits make tantivy merge."""
    with durable.opened(tmp_path) as index, durable.opened(tmp_path) as other:
        with index.writing(stays_open=True):
            for number in range(20):
                index.put(
                    [IndexDocument("a", number + 1, {"x": number}), IndexDocument(f"b{number}", 1, {"y": 1})]
                )
                assert found(other, Term("x", number)) == ["a"]
            if durable.in_files:
                with suppress(ZeroDivisionError), index.writing():
                    index.put([IndexDocument("c", 1, {"x": 1})])
                    raise ZeroDivisionError
            assert index.erase({"b0": 1}) == 1
            assert len(found(other, Term("y", 1))) == 19
        put(other, d={"x": 1})
        assert found(index, Term("x", 1)) == ["d"]


_WRITE_COUNTED = """
import sys, time
from pathlib import Path
from idgraph.model.index import IndexDocument
from tests.support.memory.index import MemoryProfileIndex
from sinks.index_values import cursor_of
from tests.contracts.implementations import PROFILE_INDEXES
index = next(each for each in PROFILE_INDEXES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
counter = Path(sys.argv[2]) / "counter"
for _ in range(20):
    with index.writing():
        value = int(counter.read_text())
        time.sleep(0.005)
        counter.write_text(str(value + 1))
        index.put([IndexDocument("a", 1, {"n": value + 1})])
index.close()
"""


@pytest.mark.process
def test_one_process_at_a_time_is_writing(durable: Implementation[ProfileIndex], tmp_path: Path) -> None:
    if not durable.in_files:
        pytest.skip("versions decide which write is the later one, or threads of its own put")
    (tmp_path / "counter").write_text("0")
    processes = [start(_WRITE_COUNTED, durable.name, tmp_path) for _ in range(3)]
    for process in processes:
        finish(process)
    with durable.opened(tmp_path) as index:
        assert found(index, Term("n", 60)) == ["a"]


_PUT_EACH_OTHERS = """
import sys
from pathlib import Path
from idgraph.model.index import IndexDocument
from tests.support.memory.index import MemoryProfileIndex
from sinks.index_values import cursor_of
from tests.contracts.implementations import PROFILE_INDEXES
index = next(each for each in PROFILE_INDEXES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
worker = int(sys.argv[3])
for version in range(1, 21):
    documents = [IndexDocument(f"d{number}", version, {"x": f"v{version}", f"y{version % 3}": 1}) for number in range(50)]
    assert index.put(documents) == {}
    assert index.put([IndexDocument(f"own{worker}:{version}", 1, {"worker": worker})]) == {}
index.close()
"""


@pytest.mark.process
def test_processes_put_at_once(durable: Implementation[ProfileIndex], tmp_path: Path) -> None:
    for process in [start(_PUT_EACH_OTHERS, durable.name, tmp_path, str(number)) for number in range(3)]:
        finish(process)
    index = durable.open(tmp_path)
    assert len(found(index, FullText("v20"))) == len(found(index, Term("y2", 1))) == 50
    assert found(index, FullText("v19")) == found(index, Term("y1", 1)) == []
    assert [len(found(index, Term("worker", each))) for each in range(3)] == [20, 20, 20]
    index.close()


_REPLACE_ALL = """
import sys
from pathlib import Path
from idgraph.model.index import IndexDocument
from tests.support.memory.index import MemoryProfileIndex
from sinks.index_values import cursor_of
from tests.contracts.implementations import PROFILE_INDEXES
index = next(each for each in PROFILE_INDEXES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
version = 0
while True:
    version += 1
    fields = {"n": version, "x": f"word{version}"}
    assert index.put([IndexDocument(f"a{number:04}", version, fields) for number in range(1000)]) == {}
    print(version, flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("pause", [0.0, 0.007, 0.013, 0.02])
@pytest.mark.parametrize("durable", long_on_servers(DURABLE), ids=str, indirect=True)
def test_a_killed_writer_leaves_whole_documents(
    durable: Implementation[ProfileIndex], tmp_path: Path, pause: float
) -> None:
    with killed_after(_REPLACE_ALL, durable.name, tmp_path, lines=3, pause=pause) as printed:
        confirmed = int(printed[-1])
    index = durable.open(tmp_path)
    for version in range(1, confirmed):
        assert (
            index.count(Query((Term("n", version),)))
            == index.count(Query((FullText(f"word{version}"),)))
            == 0
        )
    last = [version for version in (confirmed, confirmed + 1) if index.count(Query((Term("n", version),)))]
    assert len(last) == 1
    assert index.count(Query((FullText(f"word{last[0]}", "x"),))) == 1000
    put(index, a0000={"after": "wards"})
    index.put([IndexDocument("a0001", 10**6, {"x": "still takes writes"})])
    assert found(index, FullText("still")) == ["a0001"]
    index.close()


def all_pages(index: ProfileIndex, query: Query, order: Order | None = None, limit: int = 2) -> list[str]:
    page = index.search(query, limit, None, order)
    found = page.ids
    while page.cursor is not None:
        page = index.search(query, limit, page.cursor, order)
        assert 0 < len(page.ids) <= limit
        found = found + page.ids
    return found


def test_conditions_are_joined_and_negated(index: ProfileIndex) -> None:
    put(index, a={"x": "red", "n": 1}, b={"x": "red", "n": 2}, c={"x": "blue", "n": 2}, d={"y": True})
    red, two = Term("x", "red"), Term("n", 2)
    assert found(index, AnyOf((red, two))) == ["a", "b", "c"]
    assert found(index, AnyOf((Term("x", "blue"), Exists("y")))) == ["c", "d"]
    assert found(index, Not(red)) == ["c", "d"]
    assert found(index, Not(Not(red))) == ["a", "b"]
    assert found(index, All((red, Not(two)))) == ["a"]
    assert found(index, Not(All((red, two)))) == ["a", "c", "d"]
    assert found(index, Not(AnyOf((red, two)))) == ["d"]
    assert found(index, AnyOf((FullText("blue"), FullText("red", "x"))), Range("n", 2)) == ["b", "c"]
    assert found(index, AnyOf(())) == found(index, Not(All(()))) == []
    assert found(index, All(())) == found(index, Not(AnyOf(()))) == ["a", "b", "c", "d"]
    index.erase({"a": 1})
    assert found(index, Not(two)) == ["d"]


def test_exists(index: ProfileIndex) -> None:
    put(index, a={"x": ""}, b={"x": 0}, c={"x": False}, d={"x": []}, e={"y": 1}, f={"x": float("nan")})
    assert found(index, Exists("x")) == ["a", "b", "c"]
    assert found(index, Not(Exists("x"))) == ["d", "e", "f"]
    assert found(index, Exists("unknown")) == []


def test_a_word_may_be_given_by_its_beginning(index: ProfileIndex) -> None:
    put(index, a={"x": "acoustic guitar"}, b={"y": "acoustics"}, c={"x": "coustic"}, d={"x": 7})
    assert set(found(index, FullText("acou", is_prefix=True))) == {"a", "b"}
    assert found(index, FullText("ACOU", "x", is_prefix=True)) == ["a"]
    assert found(index, FullText("guitar acou", is_prefix=True)) == ["a"]
    assert found(index, FullText("acou guit", is_prefix=True)) == []
    assert found(index, FullText("", is_prefix=True)) == []


def test_the_best_match_comes_first(index: ProfileIndex) -> None:
    padding = " ".join(f"word{number}" for number in range(60))
    put(
        index,
        a={"x": f"guitar {padding}"},
        b={"x": "guitar guitar guitar"},
        c={"x": "lesson", "y": "drums"},
        d={"x": "guitar lesson"},
        **{f"other{number}": {"x": "lesson"} for number in range(20)},
    )
    assert index.search(Query((FullText("guitar"),))).ids == ["b", "d", "a"]
    assert index.search(Query((FullText("guitar", "x"),))).ids[0] == "b"
    # A rare word counts for more than a frequent one, and what only filters counts for nothing.
    either = AnyOf((FullText("lesson"), FullText("drums")))
    assert index.search(Query((either, Exists("x")))).ids[0] == "c"
    assert index.search(Query((Term("x", "guitar lesson"), FullText("guitar")))).ids == ["d"]


def test_ranked_pages_are_whole(index: ProfileIndex) -> None:
    ids = [f"id{number:03}" for number in range(25)]
    put(index, **{each: {"x": "word " * (1 + number % 3)} for number, each in enumerate(ids)})
    query = Query((FullText("word"),))
    ranked = all_pages(index, query, limit=4)
    assert ranked == index.search(query, 100).ids
    assert sorted(ranked) == ids


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_answers_are_sorted_by_any_attribute(index: ProfileIndex, limit: int) -> None:
    put(
        index,
        none={"y": 1},
        empty={"x": []},
        ten={"x": 10},
        nine={"x": 9.5},
        minus={"x": -3},
        also={"x": 10.0},
        text={"x": "10"},
        umlaut={"x": "é"},
        letter={"x": "a"},
        yes={"x": True},
        no={"x": False},
        both={"x": [7, "b"]},
    )
    last = ["empty", "none"]
    up = ["no", "yes", "text", "letter", "both", "umlaut", "minus", "nine", "also", "ten", *last]
    down = ["also", "ten", "nine", "both", "minus", "umlaut", "letter", "text", "yes", "no", *last]
    assert all_pages(index, Query(), Order("x"), limit) == up
    assert all_pages(index, Query(), Order("x", is_descending=True), limit) == down
    assert all_pages(index, Query((Range("x", 8),)), Order("x"), limit) == ["nine", "also", "ten"]
    assert sorted(all_pages(index, Query(), Order("unknown"), limit)) == sorted(up)


def test_a_sorted_page_goes_on_while_documents_come_and_go(index: ProfileIndex) -> None:
    put(index, **{f"d{number}": {"n": number} for number in range(6)})
    page = index.search(Query(), 3, None, Order("n"))
    assert page.ids == ["d0", "d1", "d2"]
    index.erase({"d1": 1, "d3": 1})
    put(index, early={"n": -1}, late={"n": 4.5})
    if not isinstance(index, MemoryProfileIndex):
        assert index.search(Query(), 9, page.cursor, Order("n")).ids == ["d4", "late", "d5"]


def test_a_cursor_of_another_order_is_refused(index: ProfileIndex) -> None:
    put(index, a={"x": "word", "n": 1}, b={"x": "word", "n": 2})
    if isinstance(index, MemoryProfileIndex):
        pytest.skip("it continues behind an id")
    cursor = index.search(Query(), 1, None, Order("n")).cursor
    for query, order in ((Query(), None), (Query(), Order("n", True)), (Query((FullText("word"),)), None)):
        with pytest.raises(QueryError):
            index.search(query, 1, cursor, order)


def test_facets_count_profiles_by_value(index: ProfileIndex) -> None:
    put(
        index,
        a={"x": "red", "n": 1},
        b={"x": "red", "n": 1.0},
        c={"x": ["blue", "red", "blue"], "n": 2.5},
        d={"x": True, "n": "2020-01-02T03:04:05Z"},
        e={"x": "Blue"},
    )
    assert index.facets(Query(), "x") == [("red", 3), (True, 1), ("Blue", 1), ("blue", 1)]
    assert index.facets(Query(), "n") == [(1, 2), ("2020-01-02T03:04:05Z", 1), (2.5, 1)]
    assert index.facets(Query((Term("x", "blue"),)), "x") == [("blue", 1), ("red", 1)]
    assert index.facets(Query(), "x", 1) == [("red", 3)]
    assert index.facets(Query(), "unknown") == []
    index.erase({"a": 1})
    assert index.facets(Query(), "x", 1) == [("red", 2)]
