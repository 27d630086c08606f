"""Random Jolt specs and inputs out of a small alphabet, so that specs and inputs often meet."""

from __future__ import annotations

from random import Random
from typing import Any

KEYS = ["a", "b", "c", "id", "x-1", "x-2", "tag-a-b", "0", "1"]
SCALARS: list[Any] = [
    "a",
    "b",
    "1",
    "",
    " Ab ",
    "tag-a-b",
    0,
    1,
    2,
    -7,
    2.5,
    1e10,
    3_000_000_000,
    True,
    False,
    None,
]


RARE_KEYS = ["a.b", "@x", "$y", "*", "&", "#", "é", "", "[0]", "10", "-1", "a|b", "x-é-1", "\\"]
RARE_SCALARS: list[Any] = [
    2**31 - 1,
    2**31,
    -(2**31),
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**63,
    10**25,
    0.1,
    1.0,
    -0.0,
    1e-7,
    123456789.125,
    -1.5e300,
    "3.5",
    "1e3",
    "-4",
    "007",
    "TRUE",
    "false",
    "é",
    "中",
    "😀x",
    " \t",
    "a,b",
    "a.b",
    "@",
    "&1",
    "x" * 40,
]


def scalar(random: Random) -> Any:
    """Mostly one that others are likely to meet, sometimes one at the edge of a type."""
    return random.choice(RARE_SCALARS if random.random() < 0.15 else SCALARS)


def some_keys(random: Random, least: int, most: int) -> list[str]:
    """Different keys; now and then a strange one."""
    keys = random.sample(KEYS, random.randint(least, most))
    if random.random() < 0.1:
        keys.insert(random.randint(0, len(keys)), random.choice(RARE_KEYS))
    return keys


def value(random: Random, depth: int = 3) -> Any:
    """A JSON value."""
    kind = random.random()
    if depth == 0 or kind < 0.35:
        return scalar(random)
    if kind < 0.75:
        keys = some_keys(random, 0, 4)
        return {key: value(random, depth - 1) for key in keys}
    return [value(random, depth - 1) for _ in range(random.randint(0, 3))]


def document(random: Random) -> Any:
    """An input; mostly an object."""
    if random.random() < 0.05:
        return value(random)
    return {key: value(random) for key in some_keys(random, 1, 6)}


def _unique(random: Random, choices: list[str], most: int) -> list[str]:
    return random.sample(choices, random.randint(1, min(most, len(choices))))


SHIFT_LEFT = [
    *KEYS,
    *KEYS,
    "*",
    "x-*",
    "*-*",
    "tag-*-*",
    "*-1",
    "a|b",
    "@",
    "$",
    "$1",
    "#k",
    "&",
    "&1",
    "@(0,id)",
]
SHIFT_LEFT += ["@(1,a)", "@(1,b.c)", "@id", "@(2,a)", "$(0,1)", "\\@", "*a*", "@(1,[0])"]
SHIFT_LEFT += [
    "$0",
    "$2",
    "$(1,1)",
    "#(t)",
    "\\*",
    "\\&",
    "\\$y",
    "\\#",
    "*-*-*",
    "&(1,0)",
    "@(0)",
    "@(1)",
    "a.b",
    "é",
]
SHIFT_LEFT += ["@(1,a[1])", "@(1,&)", "@(0,a.b.c)", "[0]", "x-\\*", "0|1", "*|a", "tag-*", "*x*-*", ""]
RIGHT = [
    "p",
    "q",
    "p.q",
    "p.r",
    "q[]",
    "p[0]",
    "p[1].x",
    "q[].x",
    "&",
    "&1",
    "p.&",
    "&1.&",
    "p.&(0,1)",
    "p[&1]",
]
RIGHT += [
    "p[#2]",
    "p[#1].k",
    "",
    "r.@(0,id)",
    "r.@(1,a)",
    "r.@id.x",
    "p.&(1,0)",
    "@(1,id)",
    "p[@(1,id)]",
    "p-&",
    "s.t.u",
]
RIGHT += [
    "a\\.b",
    "\\@x",
    "\\&.k",
    "[]",
    "[0]",
    "[1].k",
    "[&]",
    "p[].q[]",
    "p.[2].[0]",
    "&(0)",
    "&(1)",
    "&0.&1.&2",
    "p[#1]",
]
RIGHT += [
    "&(0,1)",
    "&(0,2)",
    "p.&(1,1)",
    "x-&(0,1)-&1",
    "@(2,id).z",
    "@(0,b.c)",
    "p[@(0,id)].x",
    "[#2].v",
    "p[#3][]",
    "é.&",
]


def _right(random: Random) -> Any:
    if random.random() < 0.1:
        return [random.choice(RIGHT) for _ in range(random.randint(1, 3))]
    return None if random.random() < 0.03 else random.choice(RIGHT)


def shift(random: Random, depth: int = 0) -> dict[str, Any]:
    """A `shift` spec; not all are valid."""
    spec: dict[str, Any] = {}
    for key in _unique(random, SHIFT_LEFT, 4):
        inner = depth < 3 and random.random() < 0.5 - 0.1 * depth and key not in ("@", "$", "$1", "$(0,1)")
        spec[key] = shift(random, depth + 1) if inner else _right(random)
    return spec


def default(random: Random, depth: int = 0, array: bool = False) -> dict[str, Any]:
    """A `default` spec."""
    keys = ["0", "1", "3", "*", "0|2"]
    if not array:
        keys = [*KEYS[2:], "*", "a|b", "b|c|id", "a[]", "b[]", "n", "é", "", "id|n", "x.y"]
    spec: dict[str, Any] = {}
    for key in _unique(random, keys, 4):
        if depth < 3 and (key.endswith("[]") or random.random() < 0.4):
            spec[key] = default(random, depth + 1, key.endswith("[]"))
        else:
            spec[key] = value(random, 0) if random.random() < 0.8 else [1, "z"]
    return spec


def remove(random: Random, depth: int = 0) -> dict[str, Any]:
    """A `remove` spec."""
    keys = [*KEYS, "*", "x-*", "*-*", "a|b", "tag-*-*", "*a", "é", "", "*-*-*", "0|1", "a.b", "**"]
    return {
        key: remove(random, depth + 1) if depth < 3 and random.random() < 0.5 else ""
        for key in _unique(random, keys, 3)
    }


def cardinality(random: Random, depth: int = 0) -> dict[str, Any]:
    """A `cardinality` spec."""
    keys = [*KEYS[:6], random.choice(["*", "x-*", "*-*"]), *(["@"] if depth else [])]
    return {
        key: cardinality(random, depth + 1)
        if depth < 3 and random.random() < 0.5 and key != "@"
        else random.choice(["ONE", "MANY"])
        for key in _unique(random, keys, 3)
    }


FUNCTIONS = [
    "toLower",
    "toUpper",
    "trim",
    "concat",
    "join",
    "split",
    "substring",
    "leftPad",
    "rightPad",
    "min",
    "max",
]
FUNCTIONS += [
    "abs",
    "avg",
    "intSum",
    "doubleSum",
    "longSum",
    "intSubtract",
    "doubleSubtract",
    "longSubtract",
    "divide",
]
FUNCTIONS += [
    "divideAndRound",
    "toInteger",
    "toDouble",
    "toLong",
    "toBoolean",
    "toString",
    "size",
    "squashNulls",
]
FUNCTIONS += [
    "recursivelySquashNulls",
    "squashDuplicates",
    "noop",
    "isPresent",
    "notNull",
    "isNull",
    "firstElement",
]
FUNCTIONS += ["lastElement", "elementAt", "toList", "sort"]
ARGUMENTS = [
    "@(1,a)",
    "@(1,b)",
    "@(1,id)",
    "@(1,c)",
    "@0",
    "@(2,a)",
    "1",
    "2",
    "0",
    "3.5",
    "'a'",
    "' b-c '",
    "'-'",
]
ARGUMENTS += ["true", "", "'x'", "^v", "3000000000", "-1", "@(1,&0)"]
ARGUMENTS += [
    "^w.x",
    "@(1,b.c)",
    "@(3,a)",
    "@(1,a[0])",
    "@(1,l)",
    "0.0",
    "-2.5",
    "1e2",
    "9223372036854775808",
    "null",
]
ARGUMENTS += ["'a,b'", "'('", "''", "@(1,x-1)", "@(1,tag-a-b)", "4", "10", "False", "'é'", "@1", "@(2)"]


def expression(random: Random) -> Any:
    """A right side of `modify-*`."""
    kind = random.random()
    name = random.choice(FUNCTIONS)
    if kind < 0.2:
        return f"={name}"
    if kind < 0.75:
        return f"={name}({','.join(random.choice(ARGUMENTS) for _ in range(random.randint(1, 3)))})"
    return random.choice(
        ["@(1,a)", "@(1,b.c)", "^v", "^w.x", "text", 5, True, None, "@(2,id)", {}, ["=noop", "d"]]
    )


def modify(random: Random, depth: int = 0) -> dict[str, Any]:
    """A `modify-*` spec."""
    array = depth and random.random() < 0.15
    keys = (
        ["[0]", "[2]", "*", "[1]?"]
        if array
        else [*KEYS, "*", "x-*", "a?", "~a", "_b", "+c", "n", "~n2", "m?"]
    )
    return {
        key: modify(random, depth + 1) if depth < 3 and random.random() < 0.35 else expression(random)
        for key in _unique(random, keys, 4)
    }


SPECS = {
    "shift": shift,
    "default": default,
    "remove": remove,
    "cardinality": cardinality,
    "modify-overwrite-beta": modify,
    "modify-default-beta": modify,
    "modify-define-beta": modify,
}


GENERATORS = [*SPECS, "sort"]
"""The operations that a generated chain can start with."""


def chain(random: Random, first: str | None = None) -> list[dict[str, Any]]:
    """Mostly one operation, sometimes more, so that what one leaves behind meets the next."""
    names = [first or random.choice(list(SPECS))]
    while random.random() < 0.3:
        names.append(random.choice([*SPECS, "sort"]))
    return [{"operation": name, "spec": SPECS[name](random) if name in SPECS else {}} for name in names]


CONTEXT = {"v": "ctx", "w": {"x": [1, 2]}}


def task_of(random: Random, first: str | None = None) -> dict[str, Any]:
    """One task for the oracle; now and then without a context."""
    context = None if random.random() < 0.05 else CONTEXT
    return {"spec": chain(random, first), "input": document(random), "context": context}
