"""Attacks by keys and constants that are written often, wildcards that are tried often, and numbers of many digits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from idgraph.model.errors import SpecError
from tests.transforms.spec.attack import Attack, on

LONG = "x" * 900_000
INTEGER = int("9" * 4_300)


def keys(count: int, below: Any = 1) -> dict[str, Any]:
    return {f"k{number}": below for number in range(count)}


def under_a_long_key() -> Any:
    return {LONG: keys(100_000)}


def shift(spec: Any, payload: Callable[[], Any] = under_a_long_key) -> Attack:
    return on("shift", spec, payload)


def looped(right: str, value: Any) -> Attack:
    """A function of one value, called for each of 100,000 keys."""
    return on("modify-overwrite-beta", {"w": {"*": right}}, lambda: {"v": value, "w": keys(100_000)})


def expression(text: str, value: Callable[[], Any]) -> Attack:
    spec = {"operation": "jmespath", "spec": {"x": text}}
    return Attack(lambda: spec, lambda: {"a": value()}, "")


def long_text_and_keys() -> Any:
    return {"t": LONG, "w": keys(100_000)}


KEY_ATTACKS: dict[str, Attack] = {
    "a long key joined with each key": shift({"*": {"*": "o.&1_&0"}}),
    "a long part of a key joined with each key": shift({"*x": {"*": "o.&(1,1)_&0"}}),
    "a long key above each key": shift({"*": {"*": "&.&1"}}),
    "a long part of a key above each key": shift({"*x": {"*": "&.&(1,1)"}}),
    "a long key as each value": shift({"*": {"*": {"$1": "o.&"}}}),
    "a long key looked up for each key": shift(
        {"w": {"*": {"@(2,v)": {"*": {"$": "o[]"}}}}}, lambda: {"v": {LONG: 1}, "w": keys(100_000)}
    ),
    "a long text as a key for each key": shift(
        {"w": {"*": {"@(2,t)": {"*": "&(2,0).&"}}}}, long_text_and_keys
    ),
    "a long text as one of two keys for each key": shift(
        {"w": {"*": {"@(2,t)": {"a": "p", "*": "&(2,0).&"}}}}, long_text_and_keys
    ),
    "a long text at each key": shift({"w": {"*": {"@(2,t)": "o[]"}}}, long_text_and_keys),
    "keys that double from operation to operation": Attack(
        lambda: [{"operation": "shift", "spec": {"*": "&&"}}] * 60, lambda: {"x": 1}, "/23"
    ),
    "a key of the spec below each key": shift({"*": "&." + "y" * 9_000}, lambda: keys(500_000)),
    "a text of the spec for each key": shift({"*": {"#" + "y" * 9_000: "o[]"}}, lambda: keys(500_000, {})),
    "a long path for each key": shift({"*": "&." + ".".join(["a"] * 200)}, lambda: keys(500_000)),
    "a text of modify for each key": on("modify-overwrite-beta", {"*": "y" * 100_000}, lambda: keys(500_000)),
    "a key of modify for each key": on(
        "modify-overwrite-beta", {"*": {"y" * 9_000: 1}}, lambda: {f"k{n}": {} for n in range(500_000)}
    ),
    "a text of default for each key": on(
        "default", {"*": {"k": "y" * 100_000}}, lambda: {f"k{n}": {} for n in range(200_000)}
    ),
    "a key of default for each key": on(
        "default", {"*": {"y" * 9_000: 1}}, lambda: {f"k{n}": {} for n in range(200_000)}
    ),
    "4,900 wildcards of shift": shift({f"*k{n}k*": f"o{n}" for n in range(4_900)}, lambda: keys(200_000)),
    "60 wildcards of modify": on(
        "modify-overwrite-beta", {f"*k{n}k*": 1 for n in range(60)}, lambda: keys(200_000)
    ),
    "4,900 wildcards of remove": on("remove", {f"*k{n}k*": "" for n in range(4_900)}, lambda: keys(200_000)),
    "4,900 keys of remove for each key": on(
        "remove", {"*": {f"k{n}": "" for n in range(4_900)}}, lambda: keys(400_000, {"a": 1})
    ),
    "wildcards and keys of 900 KB": shift(
        {f"*k{n}k*": f"o{n}" for n in range(2_000)}, lambda: {LONG + str(n): n for n in range(10)}
    ),
    "a key of 4,000 wildcards": shift(
        {"*x" * 4_000 + "y": "o"}, lambda: {"x" * 8_000 + f"y{n}y": n for n in range(4_000)}
    ),
    "a key of 4,000 wildcards in cardinality": on(
        "cardinality", {"*x" * 4_000 + "y": "ONE"}, lambda: {"x" * 8_000 + f"y{n}y": n for n in range(4_000)}
    ),
    "a long text for each key as a number": looped("=toDouble(@(2,v))", "1" * 900_000),
    "a blank text for each key as a number": looped("=toLong(@(2,v))", " " * 900_000),
    "the size of a long text for each key": looped("=size(@(2,v))", "é" * 900_000),
    "no part of a long text for each key": looped("=substring(@(2,v),5,2000000)", "é" * 900_000),
    "a long text padded for each key": looped("=leftPad(@(2,v),1,'x')", "é" * 900_000),
    "a long integer spelled for each key": looped("=toString(@(2,v))", INTEGER),
    "a long integer in a text for each key": looped("=concat(@(2,v),'')", INTEGER),
    "a quotient of many digits for each key": on(
        "modify-overwrite-beta", {"*": "=divideAndRound(400,@(1,&),3)"}, lambda: keys(200_000, 1e300)
    ),
    "long integers added to a decimal": expression(
        "sum(a)", lambda: [INTEGER] * 250_000 + [Decimal("1e-60")]
    ),
    "long integers beside a decimal": expression("max(a)", lambda: [INTEGER, Decimal("1e-60")] * 120_000),
    "long integers sorted with decimals": expression(
        "sort(a)", lambda: [INTEGER, Decimal("1e4299")] * 120_000
    ),
    "long integers spelled": expression("length(a[*].to_string(@))", lambda: [INTEGER] * 400_000),
    "long integers hashed": expression("length(a[*].hash(@))", lambda: [INTEGER] * 400_000),
    "a long blank text often": expression(
        f"[{','.join(['null_if_blank(a)'] * 1500)}]", lambda: " " * 900_000
    ),
    "a long text split often": expression(
        f"[{','.join(['split(`1`,a)'] * 1500)}]".replace("`1`", "','"), lambda: LONG
    ),
    "a long text in an object spelled often": expression(
        f"[{','.join(['to_string(a)'] * 1500)}]", lambda: {"k": LONG}
    ),
    "a long key spelled often": expression(f"[{','.join(['to_string(a)'] * 1500)}]", lambda: {LONG: 1}),
    "two long texts compared often": Attack(
        lambda: {"operation": "jmespath", "spec": {"x": f"[{','.join(['a==b'] * 1500)}]"}},
        lambda: {"a": LONG + "x", "b": "x" + LONG},
        "",
    ),
    "a separator with groups": Attack(
        lambda: {"operation": "modify-overwrite-beta", "spec": {"a": "=split('(a+)+$',@(1,a))"}},
        dict,
        "/spec/a",
        SpecError,
    ),
    "a separator of an event with groups": on(
        "modify-overwrite-beta", {"a": "=split(@(1,p),@(1,a))"}, lambda: {"p": "(a+)+$", "a": "a" * 9_999}
    ),
    **{
        f"a separator that backtracks: {pattern[:12]}": on(
            "modify-overwrite-beta", {"a": f"=split('{pattern}',@(1,a))"}, lambda: {"a": "a" * 9_999}, None
        )
        for pattern in ("a?" * 30 + "b", "a*a*a*a*b", "a{1,9}a{1,9}b", "a+?a+?b", "[ab]+[ab]+$|a+c")
    },
    **{
        f"a separator that reads on past each match: {pattern}": on(
            "modify-overwrite-beta",
            {"a": f"=split('{pattern}',@(1,a))"},
            partial(dict, a=dead_letter * 9_999),
        )
        for pattern, dead_letter in ((" +,| ", " "), ("a*b|a", "a"))
    },
    "a wide separator for each key": looped(f"=split('{'.{999}' * 5}c',@(2,v))", "a" * 9_999),
    "a separator that backtracks for each key": looped("=split('\\\\s*,',@(2,v))", " " * 9_999),
    "a new separator for each key": on(
        "modify-overwrite-beta",
        {"w": {"*": "=split(@(1,&),'a.b')"}},
        lambda: {"w": {f"k{n}": "[a-z]?" * 80 + f"a.{n}" for n in range(10_000)}},
    ),
}
