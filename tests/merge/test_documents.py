"""The index document of a person: leaves of objects in arrays have paths of their own, as far as policy lets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from idgraph import native
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.index import IndexRules
from idgraph.model.stamps import SpecRef, Stamp
from merge.documents import MOST_MEMBERS, document
from merge.fragments import FragmentState

ORIGIN = Origin(Stamp(0, 1, "shop", "e"), SpecRef("s", 1))
LINES = [
    {"sku": "A1", "price": 12.5, "tags": ["new", "red"], "gift": {"note": "for Ann"}},
    {"sku": "B2", "price": 3, "odd.key": True, "none": None},
    "loose",
]


def fields_of(values: dict[str, Any], is_indexable: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
    state = FragmentState()
    for path, value in values.items():
        state.registers[path] = Register(ORIGIN, Kind.PLAIN, value)
    return dict(document("a", 1, FragmentState.checked(state.encode()), IndexRules(is_indexable)).fields)


@pytest.fixture(params=["native", "reference"], autouse=True)
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "reference":
        monkeypatch.setattr(native, "states", None)


def test_leaves_in_arrays_have_paths_and_the_array_has_all_of_them() -> None:
    found = fields_of({"p.lines": LINES, "p.plain": ["x", 1], "p.empty": [], "p.hollow": [{}, [[]]]})
    everything = found.pop("p.lines")
    assert found == {
        "p.lines.sku": ["A1", "B2"],
        "p.lines.price": [12.5, 3],
        "p.lines.tags": ["new", "red"],
        "p.lines.gift.note": ["for Ann"],
        "p.lines.odd\\.key": [True],
        "p.plain": ["x", 1],
    }
    assert sorted(map(str, everything)) == sorted(
        ["A1", "12.5", "new", "red", "for Ann", "B2", "3", "True", "loose"]
    )


def test_what_policy_keeps_out_is_at_neither_path() -> None:
    found = fields_of({"p.lines": LINES}, lambda path: path != "p.lines.gift.note")
    assert "p.lines.gift.note" not in found
    assert "for Ann" not in found["p.lines"]
    assert fields_of({"p.lines": LINES}, lambda path: path != "p.lines") == {}
    only = fields_of({"p.lines": [{"sku": "A1"}]}, lambda path: path == "p.lines")
    assert only == {}


def test_objects_whose_keys_are_values_do_not_make_very_many_paths() -> None:
    found = fields_of({"p.by": [{f"k{number}": number} for number in range(5 * MOST_MEMBERS)]})
    assert len(found) == MOST_MEMBERS + 1
