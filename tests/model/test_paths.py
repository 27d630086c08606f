"""Paths: every tuple of keys has exactly one, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from idgraph.model import paths

keys = st.text(st.sampled_from("ab.\\é"), max_size=4) | st.text(max_size=5)
tuples = st.lists(keys, min_size=1, max_size=5).map(tuple)


@given(tuples)
def test_what_was_joined_splits_into_the_same(parts: tuple[str, ...]) -> None:
    assert paths.split(paths.join(parts)) == parts


@given(tuples, tuples)
def test_different_keys_have_different_paths(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    assert (paths.join(a) == paths.join(b)) == (a == b)


@given(st.text(st.sampled_from("ab.\\"), max_size=8))
def test_any_text_splits(path: str) -> None:
    assert len(paths.split(path)) >= 1


@given(tuples)
def test_ancestors_are_the_proper_prefixes_the_longest_first(parts: tuple[str, ...]) -> None:
    expected = tuple(paths.join(parts[:length]) for length in range(len(parts) - 1, 0, -1))
    assert paths.ancestors(paths.join(parts)) == expected


@given(tuples, tuples)
def test_within_means_at_or_below(path: tuple[str, ...], scope: tuple[str, ...]) -> None:
    below = path[: len(scope)] == scope
    # The path of one empty key is the empty text, which as a scope holds everything.
    assert paths.is_within(paths.join(path), paths.join(scope)) == (below or scope == ("",))


def test_examples() -> None:
    assert paths.join(["a.b", "c\\"]) == r"a\.b.c\\"
    assert paths.ancestors("a.b.c") == ("a.b", "a")
    assert paths.is_within("a.b", "a")
    assert not paths.is_within("ab", "a")
    assert not paths.is_within("a\\.b", "a")
    assert paths.is_within("anything", "")


def test_a_location_has_keys_of_the_content_only() -> None:
    content = {"places": ["a", None, {"kind": "x"}]}
    assert paths.located(("places", 1, "str"), content) == ["places", 1]
    assert paths.located(("places", 2, "Place", "kind", "path"), content) == ["places", 2, "kind"]
    assert paths.located(("places", 3), content) == ["places"]
