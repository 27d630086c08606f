"""The search language: each clause, quoting, declared types, and what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.attributes import DataType
from idgraph.model.errors import QueryError
from idgraph.model.queries import (
    All,
    AnyOf,
    Condition,
    Exists,
    FullText,
    Not,
    Prefix,
    Query,
    Range,
    Term,
)
from idgraph.model.query_language import MOST_WARNED, corrected, parse_query, warnings

TYPES = {
    "text": DataType.STRING,
    "whole": DataType.INTEGER,
    "truth": DataType.BOOLEAN,
    "several": DataType.ARRAY,
}


def parsed(word: str) -> Condition:
    (clause,) = parse_query([word], TYPES.get).clauses
    return clause


@pytest.mark.parametrize(
    ("word", "clause"),
    [
        ("guitar", FullText("guitar")),
        ("two words", FullText("two words")),
        ("a.b:wang", FullText("wang", "a.b")),
        ("a.b:x:y=z", FullText("x:y=z", "a.b")),
        ("a.b=F", Term("a.b", "F")),
        ("several=7", AnyOf((Term("several", 7), Term("several", "7")))),
        ("several=false", AnyOf((Term("several", False), Term("several", "false")))),
        ('several="7"', Term("several", "7")),
        ("several=F", Term("several", "F")),
        ("several>=7", Range("several", lower=7)),
        ("a.b=42", Term("a.b", 42)),
        ("a.b=4.5", Term("a.b", 4.5)),
        ("a.b=true", Term("a.b", True)),
        ("a.b=1e400", Term("a.b", 10**400)),
        ("a.b=0.1000000000000000000000001", Term("a.b", 0.1)),
        ("a.b=null", Term("a.b", "null")),
        ("a.b=[1]", Term("a.b", "[1]")),
        ('a.b="42"', Term("a.b", "42")),
        ('a.b=""', Term("a.b", "")),
        ('a.b="', Term("a.b", '"')),
        ('a.b="=x"', Term("a.b", "=x")),
        ('a.b=">=5"', Term("a.b", ">=5")),
        ("a=b=c", Term("a", "b=c")),
        ("a.b=44*", Prefix("a.b", "44")),
        ('a.b="*"', Term("a.b", "*")),
        ('a.b="two w"*', Prefix("a.b", "two w")),
        ('a.b=""*"*', Prefix("a.b", '"*')),
        ('a.b="x', Term("a.b", '"x')),
        ('a.b="x*', Prefix("a.b", '"x')),
        ("text=42*", Prefix("text", "42")),
        ('a.b="x*"', Term("a.b", "x*")),
        ("text=42", Term("text", "42")),
        ("text=true", Term("text", "true")),
        ("whole=42", Term("whole", 42)),
        ("whole=x", Term("whole", "x")),
        ("truth=false", Term("truth", False)),
        ("a>=30", Range("a", lower=30)),
        ("a>30", Range("a", lower=30, include_lower=False)),
        ("a<=30.5", Range("a", upper=30.5)),
        ("a<x", Range("a", upper="x", include_upper=False)),
        ('a>="5"', Range("a", lower="5")),
        ("text>=5", Range("text", lower="5")),
        ("a>=-1", Range("a", lower=-1)),
        ("a\\.b.c=1", Term("a\\.b.c", 1)),
        ('"cost centre.a=b"=7', Term("cost centre.a=b", 7)),
        ('"a:b">=7', Range("a:b", lower=7)),
        ('"say ""hi"" .x":word', FullText("word", 'say "hi" .x')),
        ('"a"="b"', Term("a", "b")),
        ('"a=b', Term('"a', "b")),
        ('"a b"', FullText('"a b"')),
        ("a.b=*", Exists("a.b")),
        ('"a b"=*', Exists("a b")),
        ("guit*", FullText("guit", is_prefix=True)),
        ("lead guit*", FullText("lead guit", is_prefix=True)),
        ("a.b:guit*", FullText("guit", "a.b", is_prefix=True)),
        ('"guit*"', FullText('"guit*"')),
        ("*", FullText("*")),
        ("a.b=f(x)", Term("a.b", "f(x)")),
        ("a.b=:)", Term("a.b", ":)")),
        ("f(x)", FullText("f(x)")),
        ('a.b="x OR y"', Term("a.b", "x OR y")),
        ("a.b = F", Term("a.b", "F")),
        ("a >= 5", Range("a", lower=5)),
        ("a >5", Range("a", lower=5, include_lower=False)),
        ("a> 5", Range("a", lower=5, include_lower=False)),
        ("a.b: ann lee", FullText(" ann lee", "a.b")),
        ('a.b = "two w"', Term("a.b", "two w")),
    ],
)
def test_clauses(word: str, clause: Condition) -> None:
    found = parsed(word)
    assert found == clause
    assert type(getattr(found, "value", None)) is type(getattr(clause, "value", None))


A, B, C = Term("a", 1), Term("b", 2), FullText("c")


@pytest.mark.parametrize(
    ("words", "condition"),
    [
        (["a=1 OR b=2"], AnyOf((A, B))),
        (["a=1", "OR", "b=2"], AnyOf((A, B))),
        (["a=1", "b=2", "OR", "c"], AnyOf((All((A, B)), C))),
        (["a=1 AND b=2 OR c"], AnyOf((All((A, B)), C))),
        (["a=1 OR b=2 OR c"], AnyOf((A, B, C))),
        (["a=1", "(b=2 OR c)"], All((A, AnyOf((B, C))))),
        (["a=1", "(", "b=2", "OR", "c", ")"], All((A, AnyOf((B, C))))),
        (["a=1", "(b=2", "OR", "c)"], All((A, AnyOf((B, C))))),
        (["NOT a=1"], Not(A)),
        (["NOT", "a=1", "b=2"], All((Not(A), B))),
        (["NOT (a=1 b=2)"], Not(All((A, B)))),
        (["NOT NOT a=1"], Not(Not(A))),
        (["((a=1))"], A),
        (["(a=1 OR d=f(x))"], AnyOf((A, Term("d", "f(x)")))),
        (["or"], FullText("or")),
        (["a = 1 OR b =2"], AnyOf((A, B))),
        (["a", "=", "1"], A),
        (["(a: ann lee)"], All((FullText("ann", "a"), FullText("lee")))),
        (['"OR"'], FullText('"OR"')),
    ],
)
def test_clauses_are_joined(words: list[str], condition: Condition) -> None:
    found = parse_query(words, TYPES.get).clauses
    assert found == (condition.conditions if isinstance(condition, All) else (condition,))


@pytest.mark.parametrize("words", ["OR", "a OR", "OR a", "NOT", "a AND OR b", "(a OR b", "a OR b )", "( )"])
def test_what_joins_nothing_is_refused(words: str) -> None:
    with pytest.raises(QueryError):
        parse_query([words], TYPES.get)
    with pytest.raises(QueryError):
        parse_query(words.split(), TYPES.get)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("(((", "is never closed"),
        ("(a", "is never closed"),
        (")", "before it"),
        ("NOT", "AND, OR"),
    ],
)
def test_the_reason_names_the_parenthesis(words: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        parse_query([words], TYPES.get)


def test_parentheses_are_nested_within_bounds() -> None:
    with pytest.raises(QueryError, match="nested"):
        parse_query(["("] * 100_000 + ["a"], TYPES.get)


@pytest.mark.parametrize(
    ("word", "reported"),
    [
        ("whole>=sixty", "'sixty' is no number"),
        ("whole>=2024-03-20", "1710892800000"),
        ("whole=x", "'x' is no number"),
        ("whole:word", "no text to search"),
        ("whole=4*", "no text to search"),
        ("truth=1", "neither true nor false"),
        ("txet=x", "did you mean text?"),
        ("NOT txet=x", "did you mean text?"),
        ("or", "OR in capitals"),
        ("...", "has no word"),
        ('text="x*"', "a star is a star"),
        ("whole>=now-30M", "moments are now-30d"),
        ("whole<now/d", "moments are now-30d"),
        ("truth<now", "neither true nor false"),
        ("text>=now-7d/d", "as text"),
        ("text=*@example.org", "text:example.org"),
        ("text=ab*cd", 'text:"ab cd"'),
        ("text=*ab*", "text:ab"),
        ("text=jo?n", 'text:"jo n"'),
        ("text:*tar", "behind a word's beginning"),
        ("gui*ar", "behind a word's beginning"),
    ],
)
def test_a_clause_that_never_matches_says_so(word: str, reported: str) -> None:
    (said,) = warnings(parse_query([word], TYPES.get), TYPES, lambda _: None)
    assert reported in said


@pytest.mark.parametrize(
    "word",
    [
        "whole>=6",
        "text>=6",
        "text:word",
        "truth=true",
        "guitar",
        "text=*",
        "new=1",
        "text=What?",
        "text=https://a.org/?b=c",
        "text=http://x.y/z?w",
        "text:guit*",
        "guit*",
    ],
)
def test_of_a_clause_that_may_match_nothing_is_said(word: str) -> None:
    assert warnings(parse_query([word], TYPES.get), TYPES, {"new": DataType.NUMBER}.get) == []


def test_of_very_many_unknown_attributes_the_first_are_warned_of() -> None:
    asked: list[str] = []

    def found(path: str) -> None:
        asked.append(path)

    query = parse_query([f"(a{number}=1)" for number in range(500)], TYPES.get)
    said = warnings(query, TYPES, found)
    assert len(said) == len(set(said)) == MOST_WARNED + 1
    assert len(asked) < 2 * MOST_WARNED


def test_paths_that_stand_for_all_below_are_known_by_what_is_below() -> None:
    known = {"account.plan": DataType.STRING, "items": DataType.ARRAY}
    within = ("account", "account.plan", "items.sku", "acount", "")
    (said,) = warnings(Query(), known, within=within)
    assert "acount" in said


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("plan = pro", "account.plan = pro"),
        ("NOT (plan=pro OR age>3)", "NOT (account.plan=pro OR account.age>3)"),
        ("account.plam:x", "account.plan:x"),
        ("pro account.plan=pro", "pro account.plan=pro"),
        ("nothing.like.it=1", "nothing.like.it=1"),
    ],
)
def test_a_query_with_unknown_attributes_is_corrected(text: str, meant: str) -> None:
    known = {"account.plan": DataType.STRING, "account.age": DataType.INTEGER}
    assert corrected(text, parse_query([f"({text})"], known.get), known) == meant


@pytest.mark.parametrize(
    "text",
    [
        "a=1 b>=2",
        "guitar a.b=web",
        "guitar a.b:web",
        "seen>=today-7d seen<today",
        "guitar a >= 5",
        '"cost centre"=7 a>3',
        'guitar "cost centre"=7',
        'a="Ann Lee" b=*',
    ],
)
def test_an_argument_with_several_clauses_means_the_same_over_http(text: str) -> None:
    found = parse_query([text], TYPES.get)
    assert len(found.clauses) == 2
    assert found == parse_query([f"({text})"], TYPES.get)


@pytest.mark.parametrize(
    "value", ["Ann Lee", "2026-01-01 10:00:00", "Re: hello", "Star Wars: Part 1", "at https://a.example/?b=1"]
)
def test_an_argument_keeps_the_blanks_of_its_value(value: str) -> None:
    assert parsed(f"a.b={value}") == Term("a.b", value)


def test_all_words_must_hold() -> None:
    assert parse_query(["a=1", "b"], TYPES.get) == Query((Term("a", 1), FullText("b")))
    assert parse_query([], TYPES.get) == Query()


@pytest.mark.parametrize(
    "word",
    [
        "",
        "  ",
        "a=",
        "a>=",
        "a:",
        "a>true",
        "truth<=false",
        ">=",
        "=",
        "=x",
        ">=5",
        "!=x",
        'a=""*',
    ],
)
def test_what_cannot_be_read(word: str) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(word)
    assert word.strip() in str(caught.value)


@pytest.mark.parametrize(
    ("word", "reported"),
    [
        ("age=>65", "=> at character 4 is no operator; did you mean >= ?"),
        ("a != b", "!= at character 2 is no operator"),
        ("age=<65", "=< at character 4 is no operator; did you mean <= ?"),
        ("a.b==x", "== at character 4 is no operator; did you mean = ?"),
        ("a.b===x", "=== at character 4 is no operator; did you mean = ?"),
        ('"a b"==x', "== at character 6 is no operator; did you mean = ?"),
        ("a>>5", "did you mean > ?"),
        ("a!=x", "!= at character 2 is no operator; there are = : >= > <= <."),
        ("a<>x", "there are = : >= > <= <."),
        ("a=~x.*", "there are = : >= > <= <."),
        ("a:=x", "there are = : >= > <= <."),
        ("html=<b>", "did you mean <= ? A value that begins with such a sign stands in double quotes"),
    ],
)
def test_an_operator_of_another_language_is_refused_with_its_place(word: str, reported: str) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(word)
    assert reported in str(caught.value)


@given(st.text(max_size=12))
def test_any_word_is_a_clause_or_a_refusal(word: str) -> None:
    try:
        parsed(word)
    except QueryError:
        return


@given(st.text(max_size=12))
def test_anything_can_be_asked_for_in_quotes(value: str) -> None:
    assert parsed(f'a.b="{value}"') == Term("a.b", value)


@given(st.text(min_size=1, max_size=12), st.sampled_from(["=", ">=", ">", "<=", "<", ":"]))
def test_any_path_can_be_asked_for_in_quotes(path: str, operator: str) -> None:
    quoted = path.replace('"', '""')
    plain = parsed(f"p{operator}x")
    assert isinstance(plain, Term | Range | FullText)
    assert parsed(f'"{quoted}"{operator}x') == plain._replace(path=path)
