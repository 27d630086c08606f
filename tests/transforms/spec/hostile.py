"""Specs and payloads that want all of a worker's time or memory: `python -m tests.transforms.spec.hostile NAME`.

Each runs in a process of its own whose CPU time and memory the system limits, so that one that is not
bounded ends the process and not the machine. It prints the kind of the error, its pointer and message.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from typing import Any

from idgraph.model.errors import SpecError, TransformError
from tests.transforms.spec.attack import CPU_SECONDS, Attack
from tests.transforms.spec.hostile_keys import KEY_ATTACKS
from transforms import compile_spec

MEMORY = 1 << 30
LARGE = 50_000_000
MEGABYTE = "x" * 1_000_000


def jmespath(expression: str) -> dict[str, Any]:
    return {"operation": "jmespath", "spec": {"x": expression}}


def expression(text: str, payload: Any = None) -> Attack:
    return Attack(lambda: [{"operation": "sort"}, jmespath(text)], lambda: payload or {"k": 1}, "/1")


def modify(right: str, payload: Callable[[], Any]) -> Attack:
    return Attack(lambda: {"operation": "modify-overwrite-beta", "spec": {"a": right}}, payload, "")


def budgeted(text: str, make: Callable[[], Any]) -> Attack:
    """An expression that reads much of an event again and again."""
    return Attack(lambda: [{"operation": "sort"}, jmespath(text)], lambda: {"a": make()}, "/1")


def listed(text: str) -> str:
    return f"[{','.join([text] * 1200)}]"


def many(right: str, make: Callable[[], Any]) -> Attack:
    """The same function at 4,000 keys."""
    spec = {f"k{n}": right for n in range(4_000)}
    return Attack(lambda: {"operation": "modify-overwrite-beta", "spec": spec}, lambda: {"x": make()}, "")


def then(operation: dict[str, Any]) -> Attack:
    """Something that walks what was placed many times, and is not measured yet."""
    copies = {"operation": "shift", "spec": {"x": [f"o{n}" for n in range(16)]}}
    return Attack(lambda: [copies, operation], lambda: {"x": [{"k": n} for n in range(250_000)]}, "/1")


def nested(levels: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if kind is dict else [value]
    return {"a": value}


def alternatives(operation: str, leaf: Any, levels: int = 12) -> Attack:
    """Keys that multiply by three from level to level: 9,840 are on the first eight, the ninth is refused."""
    spec: Any = leaf
    for _ in range(levels):
        spec = {"a|b|c": spec}
    chain = [{"operation": "sort"}, {"operation": operation, "spec": spec}]
    return Attack(lambda: chain, dict, "/1/spec" + "/a|b|c" * 9, SpecError)


TWICE = "|".join(["[@,@]"] * 40)
CROSSED = {"*": {"@(1)": {"*": {"@(3)": {"*": {"@(5)": {"*": {"@(7)": {"*": "o[]"}}}}}}}}}

ATTACKS: dict[str, Attack] = {
    **KEY_ATTACKS,
    "shift doubles": Attack(
        lambda: [{"operation": "shift", "spec": {"@": ["a", "b"]}}] * 40, lambda: {"x": 1}, "/16"
    ),
    "jmespath doubles in a chain": Attack(lambda: [jmespath("[@,@]")] * 40, lambda: {"x": 1}, "/15"),
    "jmespath doubles in an expression": expression(TWICE),
    "jmespath doubles by names": expression("{a:@,b:@}|" * 40 + "@"),
    "jmespath flattens what it doubled": expression("|".join(["[@,@][]"] * 40), [1]),
    "jmespath joins what it doubled": expression("|".join(["join('',[@,@])"] * 40), "ab"),
    "jmespath spells what it doubled": expression(f"{TWICE}|to_string(@)"),
    "jmespath spells and doubles": expression("|".join(["to_string([@,@])"] * 40)),
    "jmespath hashes what it doubled": expression(f"{TWICE}|hash(@)"),
    "jmespath compares what it doubled": expression(f"({TWICE})==({TWICE})"),
    "jmespath looks for what it doubled": expression(f"contains([{TWICE}],({TWICE}))"),
    "jmespath maps what it doubled": expression("|".join(["map(&[@,@],[@,@])"] * 40)),
    "jmespath projects what it doubled": expression("[@,@]" + "|[*].[@,@]" * 40),
    "jmespath doubles and takes the values": expression("|".join(["{a:@,b:@}.*"] * 40)),
    "wildcards times wildcards": Attack(
        lambda: {"operation": "shift", "spec": CROSSED}, lambda: {str(n): n for n in range(100)}, ""
    ),
    "an output that holds itself": Attack(
        lambda: {"operation": "modify-overwrite-beta", "spec": {"a": {"b": "@2"}}}, lambda: {"a": {}}, ""
    ),
    "concat doubles": Attack(
        lambda: [{"operation": "modify-overwrite-beta", "spec": {"a": "=concat(@(1,a),@(1,a))"}}] * 60,
        lambda: {"a": "xy"},
        "/18",
    ),
    "toString of what was doubled": Attack(
        lambda: (
            [{"operation": "shift", "spec": {"@": ["a", "b"]}}] * 7
            + [{"operation": "modify-overwrite-beta", "spec": {"s": "=toString(@1)"}}]
        ),
        lambda: {"x": "y" * 100_000},
        "/7",
    ),
    "500,000 elements looked for among 30,000 literals": budgeted(
        "a[?contains(`[" + ",".join(map(str, range(30_000))) + "]`,@)]", lambda: list(range(500_000))
    ),
    "500,000 elements compared with a long literal": budgeted(
        "a[?@==`[" + ",".join(map(str, range(30_000))) + "]`]", lambda: list(range(500_000))
    ),
    "many expressions for each element": budgeted(f"a[*].[{','.join(['@'] * 5000)}]", lambda: [1] * 500_000),
    "many expressions for each mapped element": budgeted(
        f"map(&[{','.join(['@'] * 5000)}],a)", lambda: [1] * 500_000
    ),
    "many filters": budgeted(listed("a[?@]"), lambda: [1] * 500_000),
    "many slices": budgeted(listed("a[::2]"), lambda: [1] * 500_000),
    "many sorts": budgeted(listed("sort(a)"), lambda: list(range(500_000))),
    "many greatest ones": budgeted(listed("max_by(a,&@)"), lambda: list(range(500_000))),
    "many texts joined": budgeted(listed("join('',a)"), lambda: ["x" * 100] * 9_000),
    "many texts in capitals": budgeted(listed("upper(a)"), lambda: MEGABYTE),
    "many values spelled": budgeted(listed("to_string(a)"), lambda: [1] * 400_000),
    "many values hashed": budgeted(listed("hash(a)"), lambda: [1] * 400_000),
    "many values compared": budgeted(
        listed("a[0]==a[1]"), lambda: [list(range(250_000)), list(range(250_000))]
    ),
    "many texts split": budgeted(listed("split(',',a)"), lambda: "a," * 100_000),
    "many sums": many("=intSum(@(1,x))", lambda: [1] * 500_000),
    "many sorts by modify": many("=sort(@(1,x))", lambda: list(range(500_000))),
    "many long texts concatenated": many("=concat(@(1,x),'a')", lambda: "x" * 900_000),
    "many long texts joined": many("=join('-',@(1,x),'a')", lambda: "x" * 900_000),
    "many long texts in capitals": many("=toUpper(@(1,x))", lambda: "x" * 900_000),
    "many long texts cut": many("=substring(@(1,x),1,800000)", lambda: "x" * 900_000),
    "many long texts padded": many("=leftPad(@(1,x),400,'a')", lambda: "x" * 900_000),
    "many long texts split": many("=split(',',@(1,x))", lambda: "a," * 200_000),
    "many arrays spelled": many("=toString(@(1,x))", lambda: [1] * 200_000),
    "many arrays without repetitions": many("=squashDuplicates(@(1,x))", lambda: list(range(200_000))),
    "a long text looked up 4,000 times": many("@(1,x)", lambda: MEGABYTE),
    "a long text at 100 places": Attack(
        lambda: {"operation": "shift", "spec": {"x": [f"o{n}" for n in range(100)]}},
        lambda: {"x": MEGABYTE},
        "",
    ),
    "a long text at 100 places by jmespath": Attack(
        lambda: {"operation": "jmespath", "spec": {f"o{n}": "x" for n in range(100)}},
        lambda: {"x": MEGABYTE},
        "",
    ),
    "a long key at 100 places": Attack(
        lambda: {"operation": "shift", "spec": {"x": {"*": [f"o{n}.&" for n in range(100)]}}},
        lambda: {"x": {MEGABYTE: 1}},
        "",
    ),
    **{
        f"16 copies of a long array, then {operation['operation']}": then(operation)
        for operation in (
            {"operation": "sort"},
            {"operation": "remove", "spec": {"*": {"*": {"k": ""}}}},
            {"operation": "cardinality", "spec": {"*": {"*": {"k": "ONE"}}}},
        )
    },
    "50 MB of separators": modify("=split(',',@(1,a))", lambda: {"a": "," * LARGE}),
    "50 MB of separators for jmespath": Attack(
        lambda: jmespath("length(split(',',@))"), lambda: "," * LARGE, ""
    ),
    "50 MB of digits": Attack(lambda: jmespath("to_number_exact(@)"), lambda: "1" * LARGE, ""),
    "50 MB for a time": Attack(lambda: jmespath("epoch_ms(@)"), lambda: "1" * LARGE, ""),
    "50 MB twice": modify("=concat(@(1,a),@(1,a))", lambda: {"a": "x" * LARGE}),
    "an index out of all bounds": Attack(
        lambda: {"operation": "shift", "spec": {"k": "a[@(0)]"}}, lambda: {"k": 2_000_000_000}, ""
    ),
    "arrays filled by modify": Attack(
        lambda: {"operation": "modify-overwrite-beta", "spec": {"*": {"[10000]": 1}}},
        lambda: {f"k{n}": [] for n in range(3_000)},
        "",
    ),
    "arrays filled by default": Attack(
        lambda: [{"operation": "sort"}, {"operation": "default", "spec": {"*": {"k[]": {"10000": 1}}}}],
        lambda: {f"k{n}": {} for n in range(3_000)},
        "/1",
    ),
    "arrays in arrays filled by shift": Attack(
        lambda: {"operation": "shift", "spec": {"*": "a[&].b[&].c"}},
        lambda: {str(n): n for n in range(0, 10_000, 2)},
        "",
    ),
    "elements filled by shift": Attack(
        lambda: {"operation": "shift", "spec": {"*": {"*": {"x": "&2.a[&1].x"}}}},
        lambda: {f"k{n}": {"9999": {"x": n}} for n in range(3_000)},
        "",
    ),
    "many keys for each key": Attack(
        lambda: {"operation": "default", "spec": {"*": {f"x{n}": n for n in range(9_000)}}},
        lambda: {f"k{n}": {} for n in range(3_000)},
        "",
    ),
    "many elements for each key": Attack(
        lambda: {"operation": "modify-overwrite-beta", "spec": {"*": [[[1] * 9_000]]}},
        lambda: {f"k{n}": n for n in range(3_000)},
        "",
    ),
    "many outputs for each key": Attack(
        lambda: {"operation": "shift", "spec": {"*": [f"o{n}.&" for n in range(5_000)]}},
        lambda: {f"k{n}": n for n in range(3_000)},
        "",
    ),
    "10,000 levels to sort": Attack(lambda: {"operation": "sort"}, lambda: nested(10_000, dict), ""),
    "10,000 levels of arrays to sort": Attack(
        lambda: {"operation": "sort"}, lambda: nested(10_000, list), ""
    ),
    "10,000 levels to squash": modify("=recursivelySquashNulls", lambda: nested(10_000, dict)),
    "10,000 levels to spell": modify("=toString", lambda: nested(10_000, list)),
    "10,000 levels to spell in jmespath": Attack(
        lambda: jmespath("to_string(@)"), lambda: nested(10_000, list), ""
    ),
    "10,000 levels to hash": Attack(lambda: jmespath("hash(@)"), lambda: nested(10_000, dict), ""),
    "10,000 levels that pass unchanged": Attack(
        lambda: [{"operation": "shift", "spec": {"a": "b.c"}}, {"operation": "default", "spec": {"d": 1}}],
        lambda: nested(10_000, dict),
        "/1",
    ),
    "10,000 levels for jmespath": Attack(lambda: jmespath("a"), lambda: nested(10_000, list), ""),
    "a spec of 200,000 keys": Attack(
        lambda: {"operation": "shift", "spec": {f"k{n}": f"o.k{n}" for n in range(200_000)}},
        lambda: {},
        "",
        SpecError,
    ),
    "an expression of 1 MB": Attack(lambda: jmespath(f"[{'a,' * 500_000}a]"), lambda: {}, "", SpecError),
    "5,000 brackets": Attack(
        lambda: jmespath("(" * 5_000 + "a" + ")" * 5_000), lambda: {}, "/spec/x", SpecError
    ),
    "5,000 alternatives of an expression": Attack(
        lambda: jmespath("||".join(["a"] * 5_000)), lambda: {}, "/spec/x", SpecError
    ),
    "8,000 elements under 160 pipes": Attack(
        lambda: jmespath(f"[{'a,' * 8_000}a]{'|@' * 160}|abs(@)"), dict, "", TransformError
    ),
    "60,000 elements": Attack(lambda: jmespath(f"[{'a,' * 60_000}a]"), dict, "", SpecError),
    "alternatives of shift multiply": alternatives("shift", "o[]"),
    "alternatives of shift by Java's name multiply": alternatives("com.bazaarvoice.jolt.Shiftr", "o[]"),
    "alternatives of modify multiply": alternatives("modify-overwrite-beta", 1),
    "alternatives of modify-default multiply": alternatives("modify-default-beta", 1),
    "alternatives of modify-define multiply": alternatives("modify-define-beta", 1),
    "alternatives of remove multiply": alternatives("remove", ""),
    "alternatives of default multiply": alternatives("default", 1),
    "alternatives 60 levels deep": alternatives("shift", "o[]", 60),
    "alternatives in many operations": Attack(
        lambda: [{"operation": "remove", "spec": {"a|b": {"|".join(f"k{n}" for n in range(500)): ""}}}] * 12,
        dict,
        "/8/spec/a|b/" + "|".join(f"k{n}" for n in range(500)),
        SpecError,
    ),
    "a key of 1 MB": Attack(
        lambda: {"operation": "shift", "spec": {"a": {"*a" * 500_000: "o"}}}, dict, "/spec/a", SpecError
    ),
}


def main() -> None:
    attack = ATTACKS[sys.argv[1]]
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answer: dict[str, Any] = {"error": None, "pointer": "", "message": ""}
    spec, payload = attack.spec(), attack.payload()
    try:
        compile_spec(spec)(payload)
    except (SpecError, TransformError) as error:
        answer = {"error": type(error).__name__, "pointer": error.pointer, "message": error.message}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
