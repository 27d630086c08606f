"""The places at which a spec puts the values of an event: every place of the machine is reported."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model import paths
from idgraph.model.errors import SpecError, TransformError
from transforms import compile_spec
from transforms.spec.value_flow import ValueFlow

SHIFT = "shift"


def shift(spec: dict[str, Any]) -> dict[str, Any]:
    return {"operation": SHIFT, "spec": spec}


def modify(spec: dict[str, Any], mode: str = "overwrite") -> dict[str, Any]:
    return {"operation": f"modify-{mode}-beta", "spec": spec}


WHOLE = {"operation": "jmespath", "spec": {"e": "@", "at": "epoch_ms(time, '%d.%m.%Y', 'UTC')"}}
MOVES: list[tuple[Any, tuple[str, ...], set[Any]]] = [
    (shift({"a": "x.y"}), ("a",), {("x", "y")}),
    (shift({"a": "x.y"}), ("a", "deep"), {("x", "y", "deep")}),
    (shift({"a": {"b": ["x", "y"]}}), ("a",), {("x",), ("y",)}),
    (shift({"*": "copy.&"}), ("a",), {("copy", "a")}),
    (shift({"*": {"*": "&1.&"}}), ("a", "b"), {("a", "b")}),
    (shift({"a": {"@": "x", "$": "y"}}), ("a",), {("x",), ("y",)}),
    (shift({"a": {"View": {"@(2,b.c)": "x"}}}), ("b", "c"), {("x",)}),
    (shift({"a": {"*": {"$": "x"}}}), ("a",), {("x",)}),
    (shift({"a": "list[].x"}), ("a",), {("list",)}),
    (shift({"a|b": "x"}), ("b",), {("x",)}),
    (shift({"#k": "x", "a": "y"}), ("b",), set()),
    ([shift({"a": "t.u"}), shift({"t": "v"})], ("a",), {("v", "u")}),
    ([shift({"*": "&"}), {"operation": "remove", "spec": {"a": ""}}], ("a",), set()),
    ([shift({"*": "&"}), {"operation": "remove", "spec": {"b": ""}}], ("a",), {("a",)}),
    (
        [
            {"operation": "modify-overwrite-beta", "spec": {"c": "=concat(@(1,a),'-',@(1,b))"}},
            shift({"c": "x"}),
        ],
        ("a",),
        {("x",)},
    ),
    ([{"operation": "sort"}, shift({"a": "x"})], ("a",), {("x",)}),
    ({"operation": "jmespath", "spec": {"x": {"y": "a.b"}, "z": "upper(a.c)"}}, ("a",), {("x", "y"), ("z",)}),
    ({"operation": "jmespath", "spec": {"x": "a"}}, ("a", "b"), {("x", "b")}),
    ({"operation": "jmespath", "spec": {"x": "{k: @}"}}, ("a",), {("x",)}),
    ({"operation": "jmespath", "spec": {"x": "@", "y": "a"}}, ("a", "b"), {("x", "a", "b"), ("y", "b")}),
    ([WHOLE, shift({"e": {"a": {"b": "x.y"}, "c": "z"}, "at": "t"})], ("a", "b"), {("x", "y")}),
    ([WHOLE, shift({"e": {"a": {"b": "x.y"}, "c": "z"}, "at": "t"})], ("time",), {("t",)}),
    ([WHOLE, shift({"e": {"a": "x"}})], ("b",), set()),
    # One object stands at both places, and has what is put into it at one.
    ([WHOLE, shift({"e": {"a": ["x", "y"], "b": "x.b"}})], ("b",), {("x", "b"), ("y", "b")}),
    (
        [
            {"operation": "jmespath", "spec": {"e": "@", "y": "@"}},
            {"operation": "modify-overwrite-beta", "spec": {"e": {"a": {"b": "@(2,b)"}}}},
        ],
        ("b",),
        {("e", "b"), ("y", "b"), ("e", "a", "b"), ("y", "a", "b")},
    ),
    (shift({"*": {"@(1,b)": "x.&"}}), ("b",), {("x", None)}),
]


@pytest.mark.parametrize(("operations", "place", "outputs"), MOVES)
def test_a_value_is_followed(operations: Any, place: tuple[str, ...], outputs: set[Any]) -> None:
    compile_spec(operations)
    assert ValueFlow(operations).outputs(place) == outputs


READ: list[tuple[Any, set[Any]]] = [
    (shift({"a": {"b": "x"}, "*": "copy.&"}), {("a", "b"), (None,)}),
    ([WHOLE, shift({"e": {"a": {"b": "x.y"}, "c": "z"}, "at": "t"})], {("a", "b"), ("c",), ("time",)}),
    ([shift({"*": "e.&"}), shift({"e": {"a": {"b": "x"}}})], {(None,)}),
    ([shift({"a": {"*": "e.&1.&"}}), shift({"e": {"a": "x"}})], {("a", None)}),
    ([WHOLE, {"operation": "sort"}], {(), ("time",)}),
    ([shift({"a": "e", "b": "f"}), shift({"e": "x"})], {("a",)}),
    ({"operation": "sort"}, {()}),
]


@pytest.mark.parametrize(("operations", "places"), READ)
def test_what_moves_as_a_whole_is_read_where_it_is_taken_apart(operations: Any, places: set[Any]) -> None:
    compile_spec(operations)
    assert ValueFlow(operations).reads() == places


def test_keys_that_are_made_of_values() -> None:
    operations = [
        shift({"a": {"b": ["x", "seen.@(1,c).at"]}, "d": "@d", "e": "list[@(1,n)].x", "*": "copy.&"}),
        {"operation": "jmespath", "spec": {"x": "y"}},
    ]
    compile_spec(operations)
    assert ValueFlow(operations).value_keys == [("/0/spec/a/b/1", "seen"), ("/0/spec/d", "")]


KEYS = st.sampled_from("abc")
PATHS = st.lists(st.sampled_from(["a", "b", "x", "&", "&1", "y"]), min_size=1, max_size=3).map(".".join)
LEFT = st.sampled_from(["a", "b", "c", "*", "@(1,a)", "@(1,b.c)"])
TREES = st.recursive(
    PATHS | st.lists(PATHS, min_size=1, max_size=2),
    lambda below: st.dictionaries(LEFT, below, min_size=1, max_size=3),
    max_leaves=6,
)
SPECS = st.dictionaries(LEFT, TREES, min_size=1, max_size=3)
EVENTS = st.dictionaries(KEYS, st.dictionaries(KEYS, st.just(0), min_size=1) | st.just(0), min_size=1)


EXPRESSIONS = st.sampled_from(
    ["@", "a", "b.c", "@.a.b", "{c: @}", "[a, @]", "b || @", "@ | a", "*.a", "@.*", "(@).c", "{b: @.a}"]
)
BUILT = st.dictionaries(st.sampled_from(["a", "b", "c.a"]), EXPRESSIONS | st.just("@"), min_size=1)
NAMED = st.recursive(
    st.sampled_from(["a", "b", "c.a", "c.b", "x", "a.b", "x.y"]) | st.just(["y", "z"]),
    lambda below: st.dictionaries(
        st.sampled_from(["a", "b", "c", "@(1,a)", "*"]), below, min_size=1, max_size=3
    ),
    max_leaves=4,
)
OPERATIONS = BUILT.map(lambda spec: {"operation": "jmespath", "spec": spec}) | st.dictionaries(
    KEYS, NAMED, min_size=1
).map(shift)


@given(
    operations=st.lists(OPERATIONS, min_size=1, max_size=4),
    event=EVENTS,
    place=st.lists(KEYS, min_size=1, max_size=3),
)
def test_where_the_flow_is_exact_no_value_gets_anywhere_unseen(
    operations: list[Any], event: dict[str, Any], place: list[str]
) -> None:
    _check(operations, event, place, is_exact=True)


def _check(operations: list[Any], event: dict[str, Any], place: list[str], is_exact: bool = False) -> None:
    marked: Any = "marked"
    for key in reversed(place):
        marked = {key: marked}
    flow = ValueFlow(operations)
    if not is_exact or flow.is_exact:
        _check_covered(flow, operations, event | marked, tuple(place), is_exact)


def _check_covered(
    flow: ValueFlow, operations: Any, event: dict[str, Any], place: tuple[str, ...], is_exact: bool = False
) -> None:
    try:
        output = compile_spec(operations)(event)
    except (SpecError, TransformError):
        return
    reported, read = flow.outputs(place), flow.reads()
    for found, is_array in _marked(output, ()):
        # Of two values for one place Jolt makes an array, which may stand above it; what protects a path protects those above.
        ends = [each for each in reported if is_array or len(each) <= len(found)]
        assert any(_matches(each, found) for each in ends), (found, reported)
        fitting = [each for each in read if not is_exact or len(each) <= len(place)]
        assert any(_matches(each, place) for each in fitting), read


def _marked(tree: Any, above: tuple[str, ...]) -> list[tuple[tuple[str, ...], bool]]:
    if isinstance(tree, dict):
        return [each for key, below in tree.items() for each in _marked(below, (*above, key))]
    if isinstance(tree, list):
        return [(above, True) for each in tree if _marked(each, above)][:1]
    return [(above, False)] if isinstance(tree, str) and "marked" in tree else []


def _matches(reported: tuple[str | None, ...], found: tuple[str, ...]) -> bool:
    return all(known is None or known == key for known, key in zip(reported, found, strict=False))


OBJECT: dict[str, Any] = {"k": "v", "b": {"k": "v"}}
LIST: list[Any] = ["v", {"k": "v"}]
SHARED: list[tuple[list[Any], dict[str, Any], set[Any]]] = [
    ([shift({"a": ["health", "notes"], "m": "health.m"})], {"a": OBJECT}, {("health", "m"), ("notes", "m")}),
    ([shift({"a": ["x", "y"], "m": "x"})], {"a": LIST}, {("x",), ("y",)}),
    ([shift({"a": ["list[0]", "y"], "m": "list[0].k"})], {"a": {"b": 1}}, {("list",), ("y", "k")}),
    (
        [shift({"a": ["x", "y"], "m": "m"}), shift({"x": "p", "y": "q", "m": "p.k"})],
        {"a": {}},
        {("p", "k"), ("q", "k")},
    ),
    (
        [shift({"a": ["x", "y"], "m": "m"}), modify({"x": {"k": "@(2,m)"}})],
        {"a": {}},
        {("m",), ("x", "k"), ("y", "k")},
    ),
    ([modify({"x": "@(1,a)"}), modify({"x": {"k": "@(2,m)"}})], {"a": {}}, {("m",), ("x", "k"), ("a", "k")}),
    ([modify({"x": "@(1,m)", "a": "=trim(@(1,x))"})], {}, {("m",), ("x",), ("a",)}),
    (
        [shift({"b": {"*": {"@": "x.&", "@(1)": "y.&1"}}, "m": "x.c.k"})],
        {"b": {"c": {}}},
        {("x", "c", "k"), ("y", None, "c", "k")},
    ),
    (
        [shift({"*": "&", "@": "raw", "m": "a.m"})],
        {"a": {}},
        {("m",), ("a", "m"), ("raw", "m"), ("raw", "a", "m")},
    ),
    ([shift({"m": "x", "a": "x"}), shift({"x": {"0": "y"}})], {"a": 1}, {("y",)}),
    ([shift({"m": "x", "a": "x"}), shift({"x": {"*": "y.&"}})], {"a": 1}, {("y", None)}),
    (
        [
            {"operation": "jmespath", "spec": {"x": "a || b", "y": "a", "m": "m"}},
            modify({"x": {"k": "@(2,m)"}}),
        ],
        {"a": {"k": 0}},
        {("m",), ("x", "k"), ("x",), ("y",)},
    ),
    ([shift({"*": {"*": {"@(1)": "x.&1"}}})], {"c": {"d": 1}}, {("x", None)}),
    ([shift({"*": {"@(1)": {"*": "x.&2"}}})], {"c": 1}, {("x", None)}),
    (
        [modify({"x": "=toList(@(1,w))"}), shift({"x": {"*": {"w": {"m": "y"}}}, "m": "z"})],
        {"w": {}},
        {("z",)},
    ),
]


@pytest.mark.parametrize(("operations", "event", "outputs"), SHARED)
def test_what_is_put_into_an_object_is_wherever_it_stands(
    operations: list[Any], event: dict[str, Any], outputs: set[Any]
) -> None:
    event = event | {"m": "marked"}
    _check_covered(ValueFlow(operations), operations, event, ("m",))
    assert ValueFlow(operations).outputs(("m",)) == outputs


TAKEN_APART = shift({"x": {"0": {"c": "y"}, "c": "z"}})
MOVED: list[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    ({"operation": "cardinality", "spec": {"x": "ONE"}}, {"x": [{"c": "marked"}]}, ("x", "0", "c")),
    ({"operation": "cardinality", "spec": {"*": "MANY"}}, {"x": {"c": "marked"}}, ("x", "c")),
    ({"operation": "remove", "spec": {"x": {"0": ""}}}, {"x": [1, {"c": "marked"}]}, ("x", "1", "c")),
    (modify({"q": "=squashNulls(@(1,x))"}), {"x": [None, {"c": "marked"}]}, ("x", "1", "c")),
    (modify({"x": "=recursivelySquashNulls"}), {"x": [None, {"c": "marked"}]}, ("x", "1", "c")),
]


@pytest.mark.parametrize(("operation", "event", "place"), MOVED)
def test_an_element_that_moves_is_followed(
    operation: dict[str, Any], event: dict[str, Any], place: tuple[str, ...]
) -> None:
    operations = [operation, TAKEN_APART]
    (end,) = compile_spec(operations)(event)
    assert (end,) in ValueFlow(operations).outputs(place) <= {("y",), ("z",)}


@pytest.mark.parametrize("targets", ["list", ["list", "o.&"]])
def test_many_values_at_one_place_are_one_value(targets: Any) -> None:
    flow = ValueFlow(shift({f"f{number}": targets for number in range(2000)}))
    found = [flow.outputs((f"f{number}",)) for number in range(100)]
    assert all(("list",) in each for each in found)
    assert all(((None,) in each) == isinstance(targets, list) for each in found)


TARGETS = st.builds(
    lambda keys, end: ".".join(keys) + end,
    st.lists(
        st.sampled_from(["a", "b", "c", "x", "y", "&", "&1", "&2", "&(0,1)", "k-&"]), min_size=1, max_size=3
    ),
    st.sampled_from(["", "", "", "", "[]", "[0]", "[1].k", "[].k", "[&1]"]),
)
LEAVES = TARGETS | st.lists(TARGETS, min_size=1, max_size=3)
TAKEN = st.sampled_from(["a", "b", "c", "x", "a|b", "0", "*", "a*", "*b", "&1"]) | st.sampled_from(
    ["@(1,a)", "@(1,b.c)", "@(2,a)", "@(0)", "@(1)", "@(2)", "@(1,a[0])"]
)
SHIFTS = st.recursive(
    st.dictionaries(TAKEN | st.sampled_from("@$"), LEAVES, min_size=1, max_size=3),
    lambda below: st.dictionaries(TAKEN, below | LEAVES, min_size=1, max_size=3),
    max_leaves=4,
).map(shift)
READINGS = st.sampled_from(
    [
        "@(1,a)",
        "@(1,b)",
        "@(1,c)",
        "@(1,x)",
        "@(1,y)",
        "@(2,a)",
        "@(3,b)",
        "@(1,a.b)",
        "@(1,x[0])",
        "@(1)",
        "@(2)",
    ]
)
STATEMENTS = READINGS | st.builds(
    "={}({})".format, st.sampled_from(["trim", "toList", "firstElement", "noop", "concat"]), READINGS
)
MODIFIES = st.builds(
    modify,
    st.recursive(
        st.dictionaries(
            st.sampled_from(["a", "b", "c", "x", "y", "*", "~a"]), STATEMENTS, min_size=1, max_size=3
        ),
        lambda below: st.dictionaries(
            st.sampled_from(["a", "b", "c", "x", "y", "*"]), below | STATEMENTS, min_size=1, max_size=3
        ),
        max_leaves=3,
    ),
    st.sampled_from(["overwrite", "overwrite", "default", "define"]),
)
ARRAYS = (
    st.builds(
        lambda key, how: {"operation": "cardinality", "spec": {key: how}},
        st.sampled_from(["a", "b", "x", "*"]),
        st.sampled_from(["ONE", "MANY"]) | st.sampled_from([{"a": "ONE"}, {"*": "MANY"}, {"@": "ONE"}]),
    )
    | st.builds(
        lambda key, number: {"operation": "remove", "spec": {key: {number: ""}}},
        st.sampled_from("abx"),
        st.sampled_from("01"),
    )
    | st.builds(
        lambda key, function, read: modify({key: f"={function}{read}"}),
        st.sampled_from("abxy"),
        st.sampled_from(["squashNulls", "recursivelySquashNulls", "squashDuplicates"]),
        st.sampled_from(["", "(@(1,a))", "(@(1,x))"]),
    )
)
VALUES = st.recursive(
    st.sampled_from(["leaf", "leaf", None]),
    lambda below: st.dictionaries(KEYS, below, min_size=1) | st.lists(below, min_size=1, max_size=2),
    max_leaves=6,
)


@given(
    operations=st.lists(SHIFTS | SHIFTS | MODIFIES | OPERATIONS | ARRAYS, min_size=1, max_size=3),
    event=st.dictionaries(KEYS, VALUES, min_size=1),
)
def test_no_value_gets_anywhere_unseen(operations: list[Any], event: dict[str, Any]) -> None:
    try:
        compile_spec(operations)
    except SpecError:
        return
    flow = ValueFlow(operations)
    for place, _ in paths.places(event):
        if place:
            marked = copy.deepcopy(event)
            at: Any = marked
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = "marked"
            _check_covered(flow, operations, marked, tuple(map(str, place)))


COMPUTING: list[tuple[Any, bool]] = [
    (shift({"a": "x.y"}), False),
    (shift({"*": "copy.&"}), False),
    (shift({"a": {"*": "x.&"}}), True),
    (shift({"a": {"5": {"@(2,b)": "x"}}}), True),
    (shift({"b": {"@(1,a)": {"5|6": {"#yes": "x"}}}}), True),
    (shift({"b": "x.@(1,a)"}), True),
    (shift({"b": "x[@(1,a)]"}), True),
    (shift({"b": {"5": {"@(2,a)": "x"}}}), False),
    ({"operation": "jmespath", "spec": {"x": "a", "y": "null_if_blank(lower(trim(a)))"}}, False),
    ({"operation": "jmespath", "spec": {"x": "@"}}, False),
    ({"operation": "jmespath", "spec": {"x": "hash(@)"}}, True),
    ({"operation": "jmespath", "spec": {"x": "starts_with(a, '5')"}}, True),
    ({"operation": "jmespath", "spec": {"x": "b && (a == '5' && b || c)"}}, True),
    ({"operation": "jmespath", "spec": {"x": "epoch_ms(a, b)"}}, True),
    ([shift({"a": "x"}), {"operation": "modify-overwrite-beta", "spec": {"x": "=toLower"}}], False),
    ([shift({"a": "x"}), {"operation": "modify-overwrite-beta", "spec": {"y": "=trim(@(1,x))"}}], False),
    ([shift({"a": "x"}), {"operation": "modify-overwrite-beta", "spec": {"x": "=size"}}], True),
    (
        [shift({"a": "x"}), {"operation": "modify-overwrite-beta", "spec": {"y": "=substring(@(1,x),0,1)"}}],
        True,
    ),
    ([shift({"a": "x"}), shift({"x": {"5": {"#1": "y"}}})], True),
]


@pytest.mark.parametrize(("operations", "is_computed"), COMPUTING)
def test_what_computes_with_a_value(operations: Any, is_computed: bool) -> None:
    compile_spec(operations)
    assert bool(ValueFlow(operations).ways(("a",)).computed) is is_computed


def test_a_statement_that_computes_is_the_same_behind_the_same_operations_only() -> None:
    compute = {"operation": "jmespath", "spec": {"x": "a > limit && b"}}
    one = [{"operation": "modify-default-beta", "spec": {"limit": 5}}, compute]
    other = [{"operation": "modify-default-beta", "spec": {"limit": 6}}, compute]
    compile_spec(one)
    found = ValueFlow(one).ways(("a",)).computed
    assert found == ValueFlow(one).ways(("a",)).computed
    assert not found & ValueFlow(other).ways(("a",)).computed
