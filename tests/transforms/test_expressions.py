"""Our compiled JMESPath against the library's interpreter, and our own functions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import jmespath
import pytest

from model.errors import SpecError, TransformError
from transforms import compile_spec
from transforms.expressions import compile_expression
from transforms.expressions.functions import CUSTOM_FUNCTIONS

DATA: dict[str, Any] = {
    "a": {"b": {"c": "deep", "n": None}, "list": [1, 2, 3, 4, 5]},
    "people": [
        {"name": "Ann", "age": 30, "tags": ["x", "y"], "ok": True},
        {"name": "Bob", "age": 25, "tags": [], "ok": False},
        {"name": "Cyd", "tags": ["z"]},
    ],
    "zero": 0,
    "one": 1,
    "yes": True,
    "no": False,
    "empty": "",
    "text": "hello",
    "nested": [[1, 2], [3, [4]], 5],
    "map": {"k1": {"v": 1}, "k2": {"v": 2}, "k3": 5},
    "with-dash": "dash",
}
EXPRESSIONS = """
a | a.b.c | a.b | a.b.x.y | a.list[0] | a.list[-1] | a.list[9] | a.list[-9] | a.list[1:3] | a.list[::-1]
a.list[::2] | text[0] | people[*].name | people[].tags[] | people[].age | nested[] | nested[][] | map.*.v
map.* | people[?age > `26`].name | people[?ok].name | people[?!ok].name | people[?age == `30` && ok].name
people[?name == 'Bob' || age > `29`].name | people[?age].name | zero && one | zero || one | empty || text
no || yes | !zero | !empty | !text | !a | !no | one == yes | zero == no | one == `1` | one == `1.0` | yes == `true`
one != yes | text < 'world' | one < `2` | one <= `1` | yes < one | a.[b.c, list] | a.{x: b.c, y: list[0]}
missing.[a] | missing.{a: a} | `[1, 2]` | `{"a": 1}` | 'raw' | @ | people[0] | people[*].[name, age] | length(people)
length(text) | sort_by(people, &name)[0].name | max_by(people[?age], &age).name | map(&name, people) | join('-', people[].name)
keys(map) | values(map) | contains(text, 'ell') | starts_with(text, 'he') | not_null(missing, a.b.n, text)
to_string(one) | to_number('12.5') | to_array(one) | type(a) | type(missing) | merge(map, {k1: one}) | reverse(a.list)
sum(a.list) | avg(a.list) | max(a.list) | min(a.list) | sort(a.list) | abs(`-3`) | ceil(`1.2`) | floor(`1.8`)
"with-dash" | people[*].tags[0] | people[0].tags | people[].tags | people[*].tags[*] | people[:2].name | (people[0]).name
people[?tags[0] == 'x'] | a.b && text | a.list[?@ > `2`] | people[*] | people[?contains(tags, 'z')].name | [0] | *.b
people[0].* | text.* | `null` | nested[*][0] | nested[?type(@) == 'array'][] | map.*.v[] | people[*].{n: name, a: age}
""".replace("\n", " | ")
SINGLE = [part.strip() for part in EXPRESSIONS.split(" | ") if part.strip()]
PIPED = [
    "people[*].tags | [0]",
    "people[*].name | [1]",
    "a | b | c",
    "map.* | length(@)",
    "people[].tags | []",
]


@pytest.mark.parametrize("text", [*SINGLE, *PIPED])
def test_same_as_the_library(text: str) -> None:
    expression = compile_expression(text).evaluate
    for data in (DATA, {}, [], None, "text", 5, [DATA]):
        try:
            expected = jmespath.search(text, data)
        except jmespath.exceptions.JMESPathError:
            with pytest.raises(TransformError):
                expression(data)
            continue
        found = expression(data)
        assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "data", "expected"),
    [
        ("trim(@)", "  a b ", "a b"),
        ("lower(@)", "ÄB", "äb"),
        ("upper(@)", "äb", "ÄB"),
        ("digits(@)", "+49 (30) 1²", "49301"),
        ("strip_leading_zeros(@)", "00480", "480"),
        ("strip_leading_zeros(@)", "000", "0"),
        ("strip_leading_zeros(@)", "", ""),
        ("strip_leading_zeros(@)", "a0", "a0"),
        ("first_non_null(a, b, c)", {"b": 0, "c": 1}, 0),
        ("first_non_null(a, b)", {}, None),
        ("epoch_ms(@)", "2024-03-01T00:01:16.633000+00:00", 1709251276633),
        ("epoch_ms(@)", "2024-03-01T01:01:16.633999+01:00", 1709251276633),
        ("epoch_ms(@)", "2024-03-01T00:01:16Z", 1709251276000),
        ("epoch_ms(@)", "1969-12-31T23:59:59.999900Z", -1),
        ("to_number_exact(@)", "329.97", 329.97),
        ("to_number_exact(@)", "12345678901234567890", 12345678901234567890),
        ("to_number_exact(@)", "0.1234567890123456789", Decimal("0.1234567890123456789")),
        ("to_number_exact(@)", " -5 ", -5),
        ("to_number_exact(@)", "1e3", 1000.0),
        ("to_number_exact(@)", 7, 7),
        ("split('-', @)", "a-b-", ["a", "b", ""]),
        ("join('', split(' ', @))", "a b", "ab"),
        ("null_if_blank(@)", " ", None),
        ("null_if_blank(@)", "x", "x"),
        ("`old text`", None, "old text"),
    ],
)
def test_own_functions(text: str, data: Any, expected: Any) -> None:
    found = compile_expression(text).evaluate(data)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("name", [name for name in CUSTOM_FUNCTIONS if name != "split"])
def test_null_in_null_out(name: str) -> None:
    assert compile_expression(f"{name}(missing)").evaluate({}) is None
    assert compile_expression("split(',', missing)").evaluate({}) is None


@pytest.mark.parametrize(
    ("text", "data"),
    [
        *[
            (f"{name}(@)", 5)
            for name in ("trim", "lower", "upper", "digits", "strip_leading_zeros", "epoch_ms")
        ],
        ("epoch_ms(@)", "2024-03-01T00:01:16"),
        ("epoch_ms(@)", "soon"),
        ("to_number_exact(@)", "12a"),
        ("to_number_exact(@)", ""),
        ("to_number_exact(@)", "1e99999"),
        ("to_number_exact(@)", "\u0661"),
        ("to_number_exact(@)", True),
        ("split('', @)", "a"),
        ("split(@, 'a')", 5),
        ("length(@)", 5),
    ],
)
def test_wrong_types_are_errors(text: str, data: Any) -> None:
    with pytest.raises(TransformError):
        compile_expression(text).evaluate(data)


@pytest.mark.parametrize(
    "text", ["", "a[", "nope(a)", "trim()", "trim(a, b)", "split(a)", "trim(&a)", "length()", "a[::0]"]
)
def test_refused_when_compiled(text: str) -> None:
    with pytest.raises(SpecError):
        compile_expression(text)


def test_what_cannot_be_compared_gives_null() -> None:
    evaluate = compile_expression("text < one").evaluate
    assert evaluate(DATA) is None
    assert compile_expression("@ < `2`").evaluate(Decimal("1.5")) is True


def test_targets() -> None:
    spec = {
        "a.b": "x",
        "a": {"c": "y", "d.e": "z"},
        "dotted\\.key": "x",
        "none.at.all": "missing",
        "whole": "@",
    }
    payload = {"x": 1, "y": [2], "z": {"q": 3}}
    assert compile_spec({"operation": "jmespath", "spec": spec})(payload) == {
        "a": {"b": 1, "c": [2], "d": {"e": {"q": 3}}},
        "dotted.key": 1,
        "whole": payload,
    }


def test_nothing_found_is_null() -> None:
    assert compile_spec({"operation": "jmespath", "spec": {"a": "x"}})({"y": 1}) is None


def test_literals_are_not_shared_between_events() -> None:
    chain = [
        {"operation": "jmespath", "spec": {"a": "`{}`"}},
        {"operation": "modify-overwrite-beta", "spec": {"a": {"n": "^n"}}},
    ]
    transform = compile_spec(chain)
    assert transform({}, {"n": 1}) == {"a": {"n": 1}}
    assert transform({}, {}) == {"a": {}}
