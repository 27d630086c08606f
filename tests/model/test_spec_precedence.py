"""The spec that maps an event: one answer, whatever the order of the list."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.snapshots import MetadataSnapshot, pattern_matches
from idgraph.model.specs import SpecDocument
from tests.retail import spec

TEMPLATE = spec("orders")
patterns = st.text(st.sampled_from("ab*"), min_size=1, max_size=4)
names = st.text(st.sampled_from("ab"), min_size=1, max_size=4)


def document(name: str, source: str, event_type: str) -> SpecDocument:
    return TEMPLATE.model_copy(update={"name": name, "source": source, "event_type": event_type})


@st.composite
def documents(draw: st.DrawFn) -> list[SpecDocument]:
    pairs = draw(st.lists(st.tuples(patterns, patterns), max_size=8))
    return [document(f"s{number}", *pair) for number, pair in enumerate(pairs)]


def chosen(specs: list[SpecDocument], source: str, event_type: str) -> str | None:
    # Not validated: only the order of the list matters here.
    found = MetadataSnapshot.model_construct(version=1, specs=tuple(specs)).spec_for(source, event_type)
    return found.name if found else None


@given(documents(), names, names, st.randoms())
def test_the_order_of_the_list_does_not_show(
    specs: list[SpecDocument], source: str, event_type: str, random: object
) -> None:
    shuffled = list(specs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert chosen(shuffled, source, event_type) == chosen(specs, source, event_type)


@given(documents(), names, names)
def test_the_one_chosen_matches_and_there_is_one_if_any_matches(
    specs: list[SpecDocument], source: str, event_type: str
) -> None:
    matching = {
        each.name
        for each in specs
        if pattern_matches(each.source, source) and pattern_matches(each.event_type, event_type)
    }
    found = chosen(specs, source, event_type)
    assert found in matching if matching else found is None


@given(documents(), names, names)
def test_adding_one_that_does_not_match_changes_nothing(
    specs: list[SpecDocument], source: str, event_type: str
) -> None:
    other = document("z", "zzz", "*")
    assert chosen([other, *specs], source, event_type) == chosen(specs, source, event_type)


@given(patterns, names)
def test_a_star_stands_for_any_run(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern.replace("*", "[ab]*"), name) is not None
    assert pattern_matches(pattern, name) is expected


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        # An exact source wins over any pattern, whatever the event type.
        (("shop", "*"), ("sho*", "order")),
        (("sho*", "*"), ("s*", "order")),
        # Then the more exact event type.
        (("shop", "order"), ("shop", "orde*")),
        (("shop", "ord*"), ("shop", "o*")),
        # Then the name.
        (("s*", "o*"), ("*p", "*r")),
    ],
)
def test_precedence(winner: tuple[str, str], loser: tuple[str, str]) -> None:
    pair = [document("a-first", *winner), document("b-second", *loser)]
    assert chosen(pair, "shop", "order") == "a-first"
    assert chosen(pair[::-1], "shop", "order") == "a-first"


def test_special_characters_are_literal() -> None:
    assert pattern_matches("a.b", "a.b")
    assert not pattern_matches("a.b*", "axb")
    assert pattern_matches("*", "line\nfeed")
    assert not pattern_matches("A*", "abc")
