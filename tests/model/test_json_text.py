"""Where the values of a JSON text stand, and where a text stops being JSON."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model import json_text
from idgraph.model.json_text import JsonTextError, find_places, offset_within, place_at
from metadata_service.documents.problems import DocumentError, JsonFile
from transforms.spec.pointers import pointer

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.none() | st.just(1), st.booleans())
def test_each_value_is_found_where_it_stands(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    found = find_places(text)
    decoder, expected = json.JSONDecoder(), dict[str, Any]()
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        place, each = waiting.pop()
        expected[place] = each
        if isinstance(each, dict):
            waiting += [(place + pointer(key), below) for key, below in each.items()]
        elif isinstance(each, list):
            waiting += [(f"{place}/{number}", below) for number, below in enumerate(each)]
    assert {place: decoder.raw_decode(text, spot.value)[0] for place, spot in found.spots.items()} == expected
    assert not found.repeated


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


def test_a_key_that_stands_twice() -> None:
    assert find_places('{"a": 1, "b": {"a": 2}, "a": 3}').repeated == [("/a", 24, 1)]


def test_a_long_key_above_many_values_costs_no_memory() -> None:
    """Found by review: the pointers of a body of 1 MiB took 100 GiB."""
    long = "k" * 400_000
    text = f'{{"b": 1, "{long}": [{", ".join(["1"] * 50_000)}], "b": 2}}'
    tracemalloc.start()
    try:
        with pytest.raises(JsonTextError) as refused:
            json_text.read(text)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert refused.value.is_json
    assert sum(map(len, find_places(text).spots)) < 20 << 20


def test_only_the_first_problems_are_reported() -> None:
    with pytest.raises(JsonTextError) as refused:
        json_text.read("{" + '"a": 1, ' * 5000 + '"a": 2}')
    assert len(refused.value.problems) == json_text.MOST_PROBLEMS


def test_problems_of_all_kinds_are_reported_at_once() -> None:
    with pytest.raises(JsonTextError) as refused:
        json_text.read(r'{"a": 1, "a": NaN, "b": ["\ud800", 0.1, 1e999]}', has_doubles=True)
    assert [(each.offset, each.pointer) for each in refused.value.problems] == [
        (9, "/a"),
        (14, "/a"),
        (25, "/b/0"),
        (40, "/b/2"),
    ]


def test_characters_within_a_string() -> None:
    text = r'["a\u00e4\n\ud83d\ude00b"]'
    assert text[offset_within(text, 1, 4)] == "b"
    assert text[offset_within(text, 1, 99)] == '"'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", (1, 1)),
        ('{"a":1 "b":2}', (1, 8)),
        ("{'a':1}", (1, 2)),
        ("[True]", (1, 2)),
        ('{"a":\n[1', (2, 3)),
        ("{}\n]", (2, 1)),
        ("[NaN]", (1, 2)),
        ('{"a": {"b": [1, -Infinity]}}', (1, 17)),
        (r'["\ud800"]', (1, 2)),
        (r'{"\ud800": NaN}', (1, 1)),
        ("[1e99999]", (1, 2)),
        ("9" * 5000, (1, 1)),
        ("[" * 100_000, (1, 1)),
    ],
)
def test_what_is_no_json(tmp_path: Path, text: str, place: tuple[int, int]) -> None:
    file = tmp_path / "spec.json"
    file.write_text(text)
    with pytest.raises(DocumentError) as caught:
        JsonFile(file)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == place
