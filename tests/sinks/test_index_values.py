"""Words, classes and tokens of the embedded indexes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.index import IndexDocument
from idgraph.model.queries import Scalar
from sinks.index_values import (
    WORD_BYTES,
    ValueClass,
    asked_words,
    class_of,
    exact,
    number_key,
    ordered,
    words,
)
from sinks.tantivy.documents import prepared, shown, stored


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("...", []),
        ("Hello, World", ["hello", "world"]),
        ("e-mail_address", ["e", "mail", "address"]),
        ("Zoë ZOE\u0308", ["zoe", "zoe"]),
        ("Straße \ufb01ne", ["strasse", "fine"]),
        ("İstanbul", ["istanbul"]),
        ("Ǻ ø", ["a", "o"]),
        ("Москва ЁЛКА", ["москва", "ёлка"]),
        ("日本語、本", ["日本語", "本", "日", "本", "語", "日本", "本語", "本", "本"]),
        ("x手机", ["x手机", "x", "手", "机", "手机"]),
        ("กา", ["กา", "ก", "า", "กา"]),
        ("हिन्दी", ["हिन", "दी"]),
        ("\uff14\uff12 ²", ["42", "2"]),
        ("a\x00b\x80c", ["a", "b", "c"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text())
def test_words_survive_their_own_reading(text: str) -> None:
    assert set(words(" ".join(words(text)))) == set(words(text))


AROUND = st.text(alphabet="ab 1京渋の서โ、")


@given(AROUND, st.text(alphabet="京渋のア手서울โก่"), AROUND)
def test_a_text_within_another_is_found(before: str, text: str, behind: str) -> None:
    assert set(asked_words(text)) <= set(words(before + text + behind))


@given(st.text())
def test_words_hold_nothing_that_the_tokenizer_splits_at(text: str) -> None:
    for word in words(text):
        assert not any(character.isascii() and not character.isalnum() for character in word)
        assert not any("\x80" <= character <= "\x9f" for character in word)


def test_words_are_bounded() -> None:
    assert words("x" * WORD_BYTES + " y") == ["x" * WORD_BYTES, "y"]
    assert words("x" * (WORD_BYTES + 1) + " y") == ["y"]
    assert len(words("a " * 100_000)) == 100_000


@pytest.mark.parametrize("value", [None, b"x", {}, [1], object()])
def test_what_is_not_a_scalar_is_refused_without_its_value(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^p: a {type(value).__name__} is not a scalar$"):
        prepared(IndexDocument("a", 1, {"p": [value]}))


def test_classes_and_numbers() -> None:
    assert [class_of(each) for each in ("1", 1, 1.0, Decimal(1), True)] == [
        ValueClass.TEXT,
        ValueClass.NUMBER,
        ValueClass.NUMBER,
        ValueClass.NUMBER,
        ValueClass.BOOLEAN,
    ]
    assert ordered(10**400) == float("inf")
    assert exact(Decimal("1e400")) == 10**400
    assert ordered(Decimal("NaN")) is None
    assert ordered(Decimal("1e30")) == 10**30
    assert number_key(-0.0) == number_key(0) == number_key(0.0)


@given(st.floats() | st.integers())
def test_the_short_way_gives_what_the_long_one_does(number: float) -> None:
    exactly = Decimal(number)
    assert stored(number) == stored(exactly)
    assert (stored(number) is None) == exactly.is_nan()
    if stored(number) is not None:
        text = prepared(IndexDocument("a", 1, {"p": number})).fields + b"}"
        assert [*json.loads(text)["data"].values()] in ([stored(number)], [[stored(number)]])


@given(st.text(), st.text())
def test_stored_texts_sort_as_strings_and_keep_all_apart(one: str, other: str) -> None:
    before, behind = stored(one), stored(other)
    assert before is not None
    assert behind is not None
    assert (before < behind) == (one < other)
    long, longer = "x" * 10_001 + one, "x" * 10_001 + other
    assert (stored(long) == stored(longer)) == (one == other)


@given(st.text() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_stored_value_is_shown_as_it_was(value: Scalar) -> None:
    text = stored(value)
    assert text is not None
    again = shown(text)
    assert again == value
    assert isinstance(again, bool) == isinstance(value, bool)
