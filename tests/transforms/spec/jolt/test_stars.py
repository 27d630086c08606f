from __future__ import annotations

import time

import pytest

from idgraph.model.errors import SpecError
from transforms.spec.jolt.stars import Star


@pytest.mark.parametrize(
    ("pattern", "key", "groups"),
    [
        ("*", "", ()),
        ("*", "x", ()),
        ("a*", "a", None),
        ("a*", "ab", ("b",)),
        ("*a", "ba", ("b",)),
        ("a*a", "aa", None),
        ("a*a", "aba", ("b",)),
        ("*-*", "a-b-c", ("a", "b-c")),
        ("*-*", "-a", None),
        ("a**b", "axyzb", ("x", "yz")),
        ("a**b", "axyb", None),
        ("*-*-*", "a-b-c-d", ("a", "b", "c-d")),
        ("*-*-*", "a-\n-c", None),
        ("*.*", "axb", None),
    ],
)
def test_matches(pattern: str, key: str, groups: tuple[str, ...] | None) -> None:
    assert Star(pattern).match(key) == groups


@pytest.mark.parametrize("pattern", ["**", "a**"])
def test_stars_need_text_between(pattern: str) -> None:
    with pytest.raises(SpecError):
        Star(pattern)


def test_hostile_keys_are_matched_in_one_pass() -> None:
    started = time.perf_counter()
    assert Star("*a*a*a*a*a*a*b").match("a" * 100_000) is None
    assert time.perf_counter() - started < 30
