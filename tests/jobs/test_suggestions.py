"""Suggestions: pairs that a model finds alike, never a closure over them."""

from __future__ import annotations

import pytest

from idgraph.jobs.suggestions import suggest
from idgraph.model.errors import ConfigError

NAMES = (
    "Ann Miller",
    "Bea Olsen",
    "Cho Park",
    "Dan Novak",
    "Eva Rossi",
    "Finn Weber",
    "Gus Hale",
    "Ida Stone",
)
CITIES = ("Oslo", "Rome", "Bonn")


def test_alike_records_are_suggested_with_the_parts_of_their_weight() -> None:
    records = {
        f"user:{number}": {
            "name": NAMES[number % 8],
            "birth": f"19{60 + number % 8}-0{1 + number % 8}-11",
            "city": CITIES[number % 3],
        }
        for number in range(8)
    }
    records["order:1"] = {**records["user:3"], "name": "Dan Nowak"}
    found = suggest(records, ("name", "birth", "city"), [("birth",), ("name",)])
    assert [each[:2] for each in found] == [("order:1", "user:3")]
    assert found[0].parts.keys() == {"name", "birth", "city"}
    assert found[0].parts["birth"] > 0 < found[0].weight


@pytest.mark.parametrize(
    ("compared", "blocking"), [(("name",), ()), (("name", "city"), [("birth",)])], ids=["one", "unknown"]
)
def test_too_little_to_compare_is_refused(compared: tuple[str, ...], blocking: list[tuple[str, ...]]) -> None:
    with pytest.raises(ConfigError):
        suggest({"a:1": {"name": "x"}, "a:2": {"name": "y"}}, compared, blocking)
