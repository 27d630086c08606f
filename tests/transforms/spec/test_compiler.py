from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from idgraph.model.errors import SpecError, TransformError
from transforms import compile_spec
from transforms.spec.limits import SpecLimits


def spec_error(spec: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        compile_spec(spec)
    return caught.value


@pytest.mark.parametrize(
    ("spec", "pointer", "hint"),
    [
        ("shift", "", None),
        ([], "", None),
        ([5], "/0", None),
        ([{"spec": {}}], "/0", None),
        ([{"operaton": "shift", "spec": {}}], "/0", "operaton"),
        ([{"operation": 5, "spec": {}}], "/0/operation", None),
        ([{"operation": "shfit", "spec": {}}], "/0/operation", "'shift'"),
        ([{"operation": "modify-overwrite", "spec": {}}], "/0/operation", "'modify-overwrite-beta'"),
        ([{"operation": "shift"}], "/0", None),
        ([{"operation": "sort"}, {"operation": "shift", "spec": 5}], "/1/spec", None),
        ({"operation": "shift", "spec": {"a": {}}}, "/spec/a", None),
        ({"operation": "shift", "spec": {"a/b": {"x~y": 5}}}, "/spec/a~1b/x~0y", None),
        ({"operation": "shift", "spec": {"a": ["b", 5]}}, "/spec/a/1", None),
        ({"operation": "shift", "spec": {"a": "x.*"}}, "/spec/a", None),
        ({"operation": "shift", "spec": {"a": "&4"}}, "/spec/a", None),
        ({"operation": "shift", "spec": {"a": "&(0,1)"}}, "/spec/a", None),
        ({"operation": "shift", "spec": {"@": {"a": "b"}}}, "/spec/@", None),
        ({"operation": "shift", "spec": {"a|a": "b"}}, "/spec/a|a", None),
        ({"operation": "shift", "spec": {"a": "x[y]"}}, "/spec/a", None),
        ({"operation": "shift", "spec": {"a": "@(1"}}, "/spec/a", None),
        ({"operation": "shift", "spec": {"*&": "a"}}, "/spec/*&", None),
        ({"operation": "default", "spec": {"a[]": {"x": 1}}}, "/spec/a[]/x", None),
        ({"operation": "default", "spec": {"a*": 1}}, "/spec/a*", None),
        ({"operation": "remove", "spec": {"a": {"b": "x"}}}, "/spec/a/b", None),
        ({"operation": "cardinality", "spec": {"a": "FEW"}}, "/spec/a", None),
        ({"operation": "cardinality", "spec": {"a*": "ONE", "b*": "ONE"}}, "/spec", None),
        ({"operation": "modify-default-beta", "spec": {"a": "=toLwer"}}, "/spec/a", "'toLower'"),
        ({"operation": "modify-default-beta", "spec": {"a": {"b": ["x", "=trim("]}}}, "/spec/a/b/1", None),
        ({"operation": "modify-default-beta", "spec": {"a": 1, "[0]": 2}}, "/spec/[0]", None),
        ({"operation": "modify-default-beta", "spec": {"": 1}}, "/spec/", None),
        ({"operation": "jmespath", "spec": {"a": 5}}, "/spec/a", None),
        ({"operation": "jmespath", "spec": {"a": {"b": "x["}}}, "/spec/a/b", None),
        ({"operation": "jmespath", "spec": {"a": "trm(x)"}}, "/spec/a", "'trim'"),
        ({"operation": "jmespath", "spec": {"a": "x", "a.b": "y"}}, "/spec", None),
    ],
)
def test_errors_name_the_place(spec: Any, pointer: str, hint: str | None) -> None:
    error = spec_error(spec)
    assert error.pointer == pointer
    if hint:
        assert error.hint is not None
        assert hint in error.hint


def test_deep_specs_are_refused() -> None:
    spec: Any = "x"
    for _ in range(5000):
        spec = {"a": spec}
    assert "nested too deeply" in spec_error({"operation": "shift", "spec": spec}).message
    assert "operations" in spec_error([{"operation": "sort"}] * 101).message


def test_single_operation_and_java_class_names() -> None:
    assert compile_spec({"operation": "shift", "spec": {"a": "b"}})({"a": 1}) == {"b": 1}
    chain = [{"operation": "com.bazaarvoice.jolt.Shiftr", "spec": {"a": "b"}}]
    assert compile_spec(chain)({"a": 1}) == {"b": 1}


def test_all_numbers_pass_unchanged() -> None:
    numbers = {"i": 10**40, "f": 0.1, "d": Decimal("0.12345678901234567890123"), "l": [Decimal("1e400")]}
    chain = [
        {"operation": "shift", "spec": {"*": "n.&", "@(0,i)": "x.&"}},
        {"operation": "modify-overwrite-beta", "spec": {"m": "@(1,n)", "k": {"d": "@(2,n.d)"}}},
        {"operation": "default", "spec": {"z": 1}},
        {"operation": "remove", "spec": {"z": ""}},
        {"operation": "cardinality", "spec": {"n": {"i": "MANY"}}},
        {"operation": "sort"},
        {"operation": "jmespath", "spec": {"n": "n", "d": "k.d"}},
    ]
    out = compile_spec(chain)(numbers)
    assert out["n"] == {**numbers, "i": [10**40]}
    assert out["d"] == numbers["d"]
    assert type(out["d"]) is Decimal


def test_errors_of_events_name_the_operation_and_no_value() -> None:
    transform = compile_spec(
        [{"operation": "sort"}, {"operation": "jmespath", "spec": {"who.mail": "lower(mail)"}}]
    )
    with pytest.raises(TransformError) as caught:
        transform({"mail": {"secret": 1}})
    assert caught.value.pointer == "/1"
    assert "who.mail" in caught.value.message
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_deep_payloads_are_transform_errors() -> None:
    payload: Any = 1
    for _ in range(100_000):
        payload = [payload]
    with pytest.raises(TransformError):
        compile_spec({"operation": "sort"})({"a": payload})


def test_output_cannot_grow_without_bound() -> None:
    double = {"operation": "shift", "spec": {"@": ["a", "b"]}}
    with pytest.raises(TransformError, match=r"more than|deeper"):
        compile_spec([double] * 40)({"x": 1})
    text = {"operation": "modify-overwrite-beta", "spec": {"a": "=concat(@(1,a),@(1,a))"}}
    with pytest.raises(TransformError, match="longer than"):
        compile_spec([text] * 60)({"a": "xy"})
    with pytest.raises(TransformError, match="index"):
        compile_spec({"operation": "shift", "spec": {"k": "a[@(0)]"}})({"k": 2_000_000_000})


def test_an_array_that_grows_while_it_is_walked_has_an_end() -> None:
    spec = {"operation": "shift", "spec": {"l": {"@": "e", "*": {"#x": "e"}}}}
    assert compile_spec(spec)({"l": [1, 2]}) == {"e": [1, 2, "x", "x"]}


@pytest.mark.parametrize(
    ("keys", "payload", "output"),
    [
        ({"id": "x", "[0]": None}, {"id": 0}, {"id": 0, "x": 0}),
        ({"*": "x"}, {"id": 0}, {"id": 0, "x": 0}),
        ({"i*": "y&"}, {"b": 1, "id": 0}, {"b": 1, "id": 0, "yid": 0}),
    ],
)
def test_an_object_may_grow_while_its_last_key_is_at_hand(keys: Any, payload: Any, output: Any) -> None:
    assert compile_spec({"operation": "shift", "spec": {**keys, "@(1)": ""}})(payload) == output


@pytest.mark.parametrize("keys", [{"*": "y&"}, {"*": "x"}, {"i*": "y&"}, {"i*": "y&", "b": "q"}])
def test_an_object_that_grows_while_it_is_walked_is_an_error(keys: Any) -> None:
    transform = compile_spec({"operation": "shift", "spec": {**keys, "@(1)": ""}})
    with pytest.raises(TransformError, match="adds keys"):
        transform({"id": 0, "b": 1})


@pytest.mark.parametrize("mode", ["default", "define"])
@pytest.mark.parametrize("payload", [[1, None, None], [None, None, 1]])
def test_elements_that_are_gone_are_not_walked(mode: str, payload: Any) -> None:
    spec = {"operation": f"modify-{mode}-beta", "spec": {"*": "=squashNulls(@(1))"}}
    assert compile_spec(spec)(payload) == [1]


@pytest.mark.parametrize(
    ("spec", "payload"),
    [
        ({"*": "=squashNulls(@(1))"}, {"a": 1, "b": None, "c": None}),
        ({"*": {"x": "=squashNulls(@(2))"}}, {"a": {}, "c": None}),
        ({"l": {"[0]": "=squashNulls(@(2,l))", "[3]": "5"}}, {"l": [1, None, {}, [1]]}),
        ({"*": {"[0]": "=squashNulls(@(1))", "[2]": 1}}, {"a": [None, None]}),
    ],
)
def test_what_shrinks_while_it_is_walked_is_an_error(spec: Any, payload: Any) -> None:
    with pytest.raises(TransformError, match="while it goes over it"):
        compile_spec({"operation": "modify-overwrite-beta", "spec": spec})(payload)


def test_the_limits_of_the_caller_hold_within_expressions() -> None:
    spec = {"operation": "jmespath", "spec": {"x": "[@,@]|[@,@]|[@,@]|[@,@]|[@,@]|[@,@]|length(@)"}}
    assert compile_spec(spec)({"k": 1}) == {"x": 2}
    with pytest.raises(TransformError, match="more than 20 values"):
        compile_spec(spec, SpecLimits(max_nodes=20))({"k": 1})


def test_an_output_that_holds_itself_is_an_error() -> None:
    spec = {"operation": "modify-overwrite-beta", "spec": {"a": {"b": "@2"}}}
    with pytest.raises(TransformError, match="deeper"):
        compile_spec(spec)({"a": {}})


def test_default_values_are_not_shared_between_events() -> None:
    chain = [
        {"operation": "default", "spec": {"l": [1]}},
        {"operation": "modify-overwrite-beta", "spec": {"m": [], "l": {"[1]": "@(2,x)"}, "n": {"[0]": 1}}},
        {"operation": "modify-overwrite-beta", "spec": {"m": {"[0]": 1}}},
    ]
    transform = compile_spec(chain)
    first = transform({"x": 1})
    assert transform({"x": 1}) == first == {"x": 1, "l": [1, 1], "m": [1], "n": [1]}


def test_context_is_not_changed() -> None:
    context = {"tags": {"a": 1}}
    chain = [
        {"operation": "modify-overwrite-beta", "spec": {"t": "^tags"}},
        {"operation": "modify-overwrite-beta", "spec": {"t": {"b": 2}}},
    ]
    assert compile_spec(chain)({}, context) == {"t": {"a": 1, "b": 2}}
    assert context == {"tags": {"a": 1}}
    assert compile_spec(chain)({}) == {"t": {"b": 2}}


def test_threads_do_not_meet() -> None:
    transform = compile_spec(
        [
            {
                "operation": "shift",
                "spec": {"l": {"*": {"v": "out[#2].&2", "k": "by.@(1,v)"}}, "x": "by", "y": "by"},
            },
            {"operation": "modify-default-beta", "spec": {"n": "=size(@(1,out))"}},
        ]
    )
    payloads = [
        {"l": [{"v": f"{n}-{i}", "k": i} for i in range(n)], "x": {"q": n}, "y": n} for n in range(1, 20)
    ]
    expected = [transform(copy.deepcopy(payload)) for payload in payloads]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(30):
            for payload, answer in zip(payloads, expected, strict=True):
                if transform(payload) != answer:
                    wrong.append(payload)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_alternatives_count_as_the_keys_they_stand_for() -> None:
    """The engine makes a key for each, so a bound on what is written would bound nothing."""
    spec = {"operation": "remove", "spec": {"a|b": {"c|d": "", "e": ""}}}
    size = 1 + 2 + 2 + 2 * 3
    assert compile_spec(spec, SpecLimits(max_spec_size=size))({"a": {"c": 1, "x": 2}, "b": {"d": 3}}) == {
        "a": {"x": 2},
        "b": {},
    }
    with pytest.raises(SpecError, match=r"counts as its keys") as caught:
        compile_spec(spec, SpecLimits(max_spec_size=size - 3))
    assert caught.value.pointer == "/spec/a|b/c|d"


def test_a_bar_in_an_expression_or_in_a_key_of_jmespath_is_no_alternative() -> None:
    spec = {"operation": "jmespath", "spec": {"a|b": {"c|d": "x | y"}}}
    assert compile_spec(spec, SpecLimits(max_spec_size=6))({"x": {"y": 1}}) == {"a|b": {"c|d": 1}}


STEPS = SpecLimits(max_steps=1_000)
READS_ITS_INPUT = [
    {"operation": "jmespath", "spec": {"a": "a[*].b"}},
    {"operation": "modify-overwrite-beta", "spec": {"a": "=sort(@(1,a))"}},
]


@pytest.mark.parametrize("operation", READS_ITS_INPUT, ids=["jmespath", "modify"])
def test_each_event_has_all_steps_and_no_more(operation: dict[str, Any]) -> None:
    """What is left of them is kept beside the functions: neither an event before nor another thread may use it up."""
    transform = compile_spec([operation], STEPS)
    fits, too_much = {"a": [{"b": 1}] * 400}, {"a": [{"b": 1}] * 1_001}
    for _ in range(5):
        transform(fits)
        with pytest.raises(TransformError, match="too many steps") as caught:
            transform(too_much)
        assert caught.value.pointer == "/0"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(transform, [fits] * 200))


def test_steps_are_those_of_the_whole_chain() -> None:
    sorts = {"operation": "modify-overwrite-beta", "spec": {"b": "=sort(@(1,a))"}}
    with pytest.raises(TransformError, match="too many steps") as caught:
        compile_spec([sorts] * 3, STEPS)({"a": [1] * 400})
    assert caught.value.pointer == "/2"


def test_jmespath_is_measured_only_if_it_may_give_a_part_many_times() -> None:
    """A spec takes dozens of keys of an event: none of them stands in the output twice."""
    limits = SpecLimits(max_nodes=30)
    payload = {f"k{n}": {"v": n} for n in range(40)}
    apart = {"operation": "jmespath", "spec": {f"o{n}": f"k{n}.v" for n in range(40)}}
    assert len(compile_spec(apart, limits)(payload)) == 40
    again = {"operation": "jmespath", "spec": {f"o{n}": "k0 && @" if n % 2 else "k0.v" for n in range(40)}}
    with pytest.raises(TransformError, match="the output has more than"):
        compile_spec(again, limits)(payload)
