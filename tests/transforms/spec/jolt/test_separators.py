from __future__ import annotations

import pytest

from idgraph.model.errors import TransformError
from transforms.spec import budget
from transforms.spec.jolt.functions.patterns import split
from transforms.spec.limits import DEFAULT_LIMITS


@pytest.fixture(autouse=True)
def all_steps_are_left() -> None:
    """Another test's spec may have taken them: outside of a spec nobody gives them back."""
    budget.start(DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("separator", "text", "parts"),
    [
        (",", "a,b,,c,,", ["a", "b", "", "c"]),
        (",", "", [""]),
        (",", ",", []),
        ("", "abc", ["a", "b", "c"]),
        ("\\.", "a.b", ["a", "b"]),
        ("[.,]", "a.b,c", ["a", "b", "c"]),
        ("\\s*,\\s*", "a , b", ["a", "b"]),
        ("x*", "axb", ["a", "", "b"]),
        ("a*b*c*d", "1aabd2cd3d", ["1", "2", "3"]),
        ("ab|a??b*c", "1abc2bc3c", ["1", "", "2", "3"]),
        ("|,", "a,b", ["a", ",", "b"]),
        ("\\s+?,", "a  ,b", ["a", "b"]),
        (" +,| ", "a  ,b c" + " " * 300, ["a", "b", "c"]),
        (".", "a\r\u0085b\u2028\u2029\nc", ["", "\r\u0085", "\u2028\u2029\n"]),
        (".+?-", "a-\rb-\u2028c-d", ["", "\r", "\u2028", "d"]),
        ("[.]", "a.\u0085.b", ["a", "\u0085", "b"]),
        *(("$", f"a\r\n{end}", ["a\r\n", end]) for end in ("\n", "\r", "\u0085", "\u2028", "\u2029")),
        ("$", "a\r\n", ["a", "\r\n"]),
        ("b*$", "ab\r\n", ["a", "", "\r\n"]),
        ("b*?$", "abb\u0085", ["a", "", "\u0085"]),
        ("[^é]*?,|\\B", "éé,\ud800,b", ["é", "é", "", "b"]),
        ("[\\S,]?[\\u00e9\\x2b]", "aé\x0b+b", ["", "\x0b", "b"]),
        ("\\bx|y{2,3}", "x1xx yyyyyz", ["", "1xx ", "", "z"]),
    ],
)
def test_splits_as_java(separator: str, text: str, parts: list[str]) -> None:
    assert split(separator, text) == parts


@pytest.mark.parametrize(
    "separator", ["(a+)+", "a(?=b)", "(a)\\1", "[", "a*+b", "a{1,9999}", "a{0,999}b", "a*" * 400, "a+$b"]
)
def test_patterns_that_could_be_slow_are_refused(separator: str) -> None:
    with pytest.raises(TransformError):
        split(separator, "a" * 100)


def test_long_texts_are_not_split_by_patterns() -> None:
    with pytest.raises(TransformError):
        split("[ab]", "x" * 20_000)
