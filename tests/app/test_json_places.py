"""The scanner agrees with the decoder, and reports where a text stops being JSON."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from idgraph.app.documents.json_places import JsonSyntaxError, find_places, offset_within, place_at
from idgraph.model import canonical

VALUES: list[Any] = [
    {"a": [1, 2.5, -3e10, True, None, "x\n\u00e9\U0001f600"], "b/c": {"~": {}}},
    [[], {}, [[""]]],
    "s",
]


def damaged(random: Random, text: str) -> str:
    characters = list(text)
    for _ in range(random.randint(0, 2)):
        at = random.randrange(len(characters) + 1)
        if random.random() < 0.5:
            characters.insert(at, random.choice("{}[]\",:0123.eE+-\\utrfalsn \n\t'/"))
        else:
            del characters[at : at + 1]
    return "".join(characters)


def decodes(text: str) -> bool:
    try:
        canonical.decode(text)
    except canonical.MalformedJSON:
        return False
    return True


def test_accepts_what_the_decoder_accepts() -> None:
    random = Random(3)
    texts = [json.dumps(value, indent=indent) for value in VALUES for indent in (None, 1)]
    accepted = 0
    offsets: list[tuple[int, int]] = []
    for _ in range(5000):
        text = damaged(random, random.choice(texts))
        try:
            find_places(text)
        except JsonSyntaxError as error:
            assert not decodes(text), text
            offsets.append((error.offset, len(text)))
        else:
            assert decodes(text), text
            accepted += 1
    assert 1000 < accepted < 4000
    assert all(0 <= offset <= length for offset, length in offsets)


def test_places() -> None:
    text = '{\n  "a/b": [1,\n    {"~": "x"}]}'
    spots = find_places(text).spots
    assert {pointer: place_at(text, spot.value) for pointer, spot in spots.items()} == {
        "": (1, 1),
        "/a~1b": (2, 10),
        "/a~1b/0": (2, 11),
        "/a~1b/1": (3, 5),
        "/a~1b/1/~0": (3, 11),
    }
    assert place_at(text, spots["/a~1b/1/~0"].key or 0) == (3, 6)


def test_characters_within_a_string() -> None:
    text = r'["a\u00e4\n\ud83d\ude00b"]'
    assert text[offset_within(text, 1, 4)] == "b"
    assert text[offset_within(text, 1, 99)] == '"'


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", (1, 1), "expected a value, found the end of the file"),
        ('{"a":1,}', (1, 7), "expected no ',' before '}'"),
        ('{"a":1 "b":2}', (1, 8), "expected ',' or '}'"),
        ("{'a':1}", (1, 2), "found a single quote; texts stand in double quotes"),
        ("// x\n{}", (1, 1), "found '//'; JSON has no comments"),
        ("[True]", (1, 2), "found 'True'; JSON has true"),
        ('["x\ny"]', (1, 2), "the quote that opens here is not closed on its line"),
        ('["\t"]', (1, 3), "a control character stands in a text"),
        (r'["\q"]', (1, 3), r"'\q' is no escape"),
        (r'["\ud800"]', (1, 2), r"half of a \u pair"),
        ("[01]", (1, 2), "expected a number as JSON has them, found '01'"),
        ("[1e99999]", (1, 2), "the number is out of range"),
        ("9" * 5000, (1, 1), "the number is out of range"),
        ('{"a":\n[1', (2, 3), "the '[' of line 2, column 1 is not closed"),
        ("{}\n]", (2, 1), "expected the end of the file, found ']'"),
        ('{"a" 1}', (1, 6), "expected ':' after the key"),
        ("[" * 100_000, (1, 201), "nested deeper than 200 levels"),
    ],
)
def test_what_is_no_json(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        find_places(text)
    assert place_at(text, caught.value.offset) == place
    assert message in caught.value.message
