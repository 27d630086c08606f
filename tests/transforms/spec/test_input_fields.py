"""The fields of its input that a spec reads."""

from __future__ import annotations

from typing import Any

from idgraph.model.spec_use import MOST_FIELDS
from transforms import compile_spec
from transforms.schema.value_keys import ValueKeys
from transforms.spec.input_fields import ENOUGH, MOST_TRIES, InputFields

SHIFT = [
    {
        "operation": "shift",
        "spec": {
            "user": {"id": "id"},
            "items": {"*": {"sku": "skus[]"}},
            "kind": {"sale": {"@(2,total)": "total"}},
        },
    }
]


def known(payloads: list[Any], operations: Any = SHIFT) -> dict[str, bool]:
    fields, transform = InputFields(), compile_spec(operations)
    keys = ValueKeys(operations)
    for payload in payloads:
        fields.look_at(payload, lambda each: transform(each, {}), keys.found_in(payload))
    return fields.known()


def event(**more: Any) -> dict[str, Any]:
    items = [{"sku": "a", "price": 1}, {"sku": "b", "price": 2}]
    return {"user": {"id": "7", "name": "Ann"}, "items": items, "kind": "sale", "total": 3} | more


def test_a_field_is_read_if_the_output_is_another_without_it() -> None:
    assert known([event()] * ENOUGH) == {
        "/user/id": True,
        "/user/name": False,
        "/items/*/sku": True,
        "/items/*/price": False,
        "/kind": True,
        "/total": True,
    }


def test_an_object_that_is_always_empty_is_a_field_too() -> None:
    found = known([event(context={}, tags=[])] * ENOUGH)
    assert (found["/context"], found["/tags"], "" in found) == (False, False, False)
    assert known([{}] * ENOUGH) == {}


def test_one_event_that_shows_it_is_enough() -> None:
    others = [event(kind="visit")] * (ENOUGH - 1)
    assert known([*others, event()])["/total"] is True
    assert known([event(kind="visit")] * ENOUGH)["/total"] is False


def test_a_single_event_says_nothing_of_what_is_not_read() -> None:
    assert False not in known([event()]).values()


def test_a_key_that_is_a_value_is_not_kept_though_it_looks_like_a_name() -> None:
    """Found by review: a shop's members, by name, went to the metadata service as unread fields."""
    members = {"Zebulon": {"since": 2020}}
    others = [event(members=members)] * ENOUGH
    assert "/members/Zebulon/since" in known(others)
    told = event(members=members, winner="zebulon foo")
    for payloads in ([*others, told], [told, *others, *others]):
        found = known(payloads)
        assert not any("Zebulon" in path for path in found)
        assert found["/user/name"] is False


def test_keys_that_may_be_values_are_not_kept() -> None:
    keys = {"ann@example.com": 1, "20240301T1200": 1, "x" * 100: 1, "4111 1111 1111 1111": 1, "plain": 1}
    many = {f"key{letter}": 1 for letter in map(chr, range(97, 97 + 26))} | {f"more{n}": 1 for n in range(20)}
    found = known([event(**keys, many=many)] * (ENOUGH * 3))
    assert {path for path in found if path.startswith(("/many", "/2", "/4", "/x", "/ann"))} == set()
    assert found["/plain"] is False


def test_it_is_bounded_and_an_event_that_fails_is_passed_over() -> None:
    wide = [
        {f"{letter}{other}": {"a": 1, "b": 1, "c": 1} for letter in "abc" for other in "abcdefghij"}
        for _ in range(200)
    ]
    names = [{f"g{chr(97 + number % 26)}{chr(97 + number // 26)}": each} for number, each in enumerate(wide)]
    assert len(known(names)) <= MOST_FIELDS
    assert len([each for each in known([wide[0]] * ENOUGH) if each]) <= MOST_TRIES * ENOUGH
    assert known([["no", "object"], None, {}]) == {}
    deep: Any = 1
    for _ in range(20):
        deep = {"k" * 60: deep}
    assert not [path for path in known([{"deep": deep}] * ENOUGH) if path.startswith("/deep")]


def test_the_payload_stays_as_it_is() -> None:
    payload = event()
    known([payload] * ENOUGH)
    assert payload == event()
