"""A payload shows nothing that policy protects, and nothing above the reader's clearance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.errors import SpecError, TransformError
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDocument
from metadata_service.specs.cases import stood_in
from tests.retail import CREATED, attribute, lines, snapshot
from tests.transforms.spec.test_value_flow import EVENTS, KEYS, SPECS, shift
from transforms import compile_spec
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import MappingSpec
from transforms.spec.masking import MaskedPayload, mask

SEALED = {"$protected": True, "type": "text"}
EVERYTHING: Callable[[str], bool] = lambda _: True  # noqa: E731


def spec(chain: list[dict[str, Any]], **stated: Any) -> SpecDocument:
    identifiers = [{"type": "user_id", "path": "user", "primary": True}]
    common = {"name": "web", "source": "web", "event_type": "*", "version": 1, "created": CREATED}
    return SpecDocument.model_validate(common | {"operations": chain, "identifiers": identifiers} | stated)


def jmespath(**fields: str) -> list[dict[str, Any]]:
    return [{"operation": "jmespath", "spec": fields}]


def masked(
    payload: Any,
    chain: list[dict[str, Any]] | None,
    sees: Callable[[str], bool] = EVERYTHING,
    known: MetadataSnapshot | None = None,
    **stated: Any,
) -> MaskedPayload:
    declared = [
        attribute("mail", encryption="protected"),
        *(attribute(path, encryption="none") for path in ("user", "plan", "size")),
    ]
    found = known or snapshot(specs=[], declared=declared)
    compiled = None if chain is None else MappingSpec(spec(chain, **stated))
    return mask(payload, compiled, {}, AttributeTree(found), sees)


def test_a_value_is_shown_by_the_policy_of_what_it_becomes() -> None:
    payload = {"u": "u1", "m": "ann@example.com", "p": "gold", "n": "12.50", "left": "over"}
    found = masked(payload, jmespath(user="u", mail="lower(m)", plan="p", size="to_number_exact(n)"))
    assert found.document == {"u": "u1", "m": SEALED, "p": "gold", "n": "12.50", "left": SEALED}
    assert found.becomes == {"/u": {"user"}, "/m": {"mail"}, "/p": {"plan"}, "/n": {"size"}}


def test_without_a_spec_only_keys_and_types_are_shown() -> None:
    payload = {"name": "Ann", "age": 36, "empty": [], "ann@example.com": 1, "Ann Lee": "x"}
    found = masked(payload, None)
    text = json.dumps(found.document)
    assert "Ann" not in text
    assert "36" not in text
    assert "example.com" not in text
    assert list(found.document) == ["name", "age", "empty", "(key 4)", "(key 5)"]
    assert found.document["age"]["type"] == "number"
    assert found.becomes == {}


def test_what_is_above_the_clearance_is_absent() -> None:
    payload = {"u": "u1", "m": "ann@example.com", "p": "gold", "all": [{"b": "steel", "a": 1}, 7]}
    chain = jmespath(user="u", mail="m", plan="[p, u]", size="all")
    found = masked(payload, chain, lambda path: path not in ("plan", "mail"))
    assert found.document == {"all": [{"b": "steel", "a": 1}, 7]}
    found = masked(payload, chain, lambda path: path != "size")
    assert found.document == {"u": "u1", "m": SEALED, "p": "gold", "all": [{}]}


def test_protection_holds_below_an_attribute_and_not_beside_it() -> None:
    declared = [attribute("home.street", encryption="protected"), attribute("user", encryption="none")]
    chain = [{"operation": "shift", "spec": {"u": "user", "s": "home.street", "c": "home.city"}}]
    payload = {"u": "u1", "s": {"name": "Main St"}, "c": "Ulm"}
    found = masked(payload, chain, known=snapshot(specs=[], declared=declared))
    # The keys of a protected value are part of it.
    assert found.document == {"u": "u1", "s": {"(key 1)": SEALED}, "c": "Ulm"}


def test_what_is_only_looked_at_is_sealed() -> None:
    payload = {"u": "u1", "born": "1990-02-03", "list": [{"p": "three", "q": "other", "flag": True}]}
    chain = jmespath(user="u", plan="born < '2000'", size="list[0].p")
    found = masked(payload, chain).document
    assert found["born"] == {**SEALED, "like": "2000-01-01"}
    assert found["list"] == [
        {"p": "three", "q": SEALED, "flag": {"$protected": True, "type": "true or false"}}
    ]


def test_a_value_that_may_become_a_protected_one_is_sealed() -> None:
    # Where one is missing the other becomes the address.
    payload = {"u": "u1", "a": "ann@example.com", "b": "ann@example.com"}
    assert masked(payload, jmespath(user="u", mail="a || b", plan="b")).document == {
        "u": "u1",
        "a": SEALED,
        "b": SEALED,
    }


def test_a_value_that_looks_sensitive_is_sealed_where_nobody_decided() -> None:
    chain = jmespath(user="u", other="a", list="b")
    found = masked({"u": "u1", "a": "ann@example.com", "b": ["x", "bob@example.com"]}, chain)
    assert found.document == {"u": "u1", "a": SEALED, "b": ["x", SEALED]}


def test_a_key_that_becomes_a_protected_value_is_hidden() -> None:
    chain = [{"operation": "shift", "spec": {"u": "user", "by": {"*": {"$": "mail", "n": "size"}}}}]
    found = masked({"u": "u1", "by": {"Ann": {"n": 1}}}, chain)
    assert "Ann" not in json.dumps(found.document)
    assert list(found.document["by"]) == ["(key 1)"]
    # A value below an unknown key of the output may be any attribute.
    keyed = [{"operation": "shift", "spec": {"u": "user", "by": {"*": {"n": "@(1,k)"}}}}]
    assert masked({"u": "u1", "by": {"x": {"n": 1, "k": "Ann"}}}, keyed).document["by"]["(key 1)"]["n"] != 1


def test_the_ordinal_is_shown_and_the_id_of_the_event_is_not() -> None:
    payload = {"u": "u1", "at": "2024-04-02T09:56:41Z", "id": "i1"}
    chain = [{"operation": "shift", "spec": {"u": "user", "at": "_event.ordinal", "id": "_event.id"}}]
    found = masked(payload, chain, ordinal="_event.ordinal", id="_event.id")
    assert found.document == {"u": "u1", "at": "2024-04-02T09:56:41Z", "id": SEALED}


def test_one_value_that_cannot_be_mapped_is_named() -> None:
    payload = {"p": {"a": "soon", "b": "gold"}, "u": "u1", "m": "ann@example.com"}
    fields = {"user": "u", "mail": "m", "plan": "p.b"}
    found = masked(payload, jmespath(**fields, size="epoch_ms(p.a)"))
    assert found.document == {"p": {"a": SEALED, "b": "gold"}, "u": "u1", "m": SEALED}
    assert found.culprits == ["/p/a"]
    ordinal = {"_event.ordinal": "epoch_ms(p.a)"}
    shown = masked(payload, jmespath(**fields, **ordinal), ordinal="_event.ordinal")
    assert shown.document["p"] == {"a": "soon", "b": "gold"}
    assert shown.culprits == ["/p/a"]


@given(
    st.recursive(st.text() | st.integers(), lambda below: st.lists(below) | st.dictionaries(st.text(), below))
)
def test_any_payload_without_a_policy_shows_no_text(payload: Any) -> None:
    if isinstance(payload, str | int):
        payload = [payload]

    def only_marks(value: Any) -> bool:
        if isinstance(value, dict) and value.get("$protected") is True:
            return value["type"] in ("text", "number")
        inside = value.values() if isinstance(value, dict) else value
        return isinstance(value, dict | list) and all(map(only_marks, inside))

    assert only_marks(masked(payload, None).document)


@given(
    specs=st.lists(SPECS, min_size=1, max_size=2), event=EVENTS, place=st.lists(KEYS, min_size=1, max_size=2)
)
def test_no_value_of_a_protected_attribute_is_shown(
    specs: list[Any], event: dict[str, Any], place: list[str]
) -> None:
    operations = [shift(each) for each in specs]
    marked: Any = "marked"
    for key in reversed(place):
        marked = {key: marked}
    event = event | marked
    try:
        document = spec(operations)
        output = compile_spec(operations)(event)
    except (SpecError, TransformError):
        return
    open_ones = [attribute(path, encryption="none") for path in ("a", "b", "c", "user")]
    sealed = [attribute(path, encryption="protected") for path in ("x", "y")]
    known = snapshot(specs=[], declared=[*open_ones, *sealed])
    found = mask(event, MappingSpec(document), {}, AttributeTree(known), EVERYTHING)
    protected = [output.get(path) for path in ("x", "y")] if isinstance(output, dict) else []
    assert "marked" not in json.dumps(protected) or "marked" not in json.dumps(found.document)


def test_events_of_the_shop_show_no_protected_value() -> None:
    known = snapshot()
    tree = AttributeTree(known)
    specs = {each.source: each for each in known.specs}
    for source in ("orders", "segment"):
        document = specs[source]
        for line in lines(source, 30):
            payload = json.loads(line)
            found = mask(payload, MappingSpec(document), {"source": source}, tree, EVERYTHING)
            text = json.dumps(found.document)
            for secret in (payload.get("customer", {}), payload.get("traits", {})):
                for name in ("email", "name"):
                    value = secret.get(name)
                    for each in value.values() if isinstance(value, dict) else [value]:
                        assert f'"{each}"' not in text
            assert found.becomes


def test_a_sealed_time_or_number_has_another_one_in_its_place() -> None:
    """Found by use: the time of a source without a spec was the text "sealed", by which a good spec set every event aside."""
    payload = {
        "at": "2026-05-03T10:20:30Z",
        "day": "03.05.2026",
        "ms": 1_777_803_630_000,
        "no": "0017",
        "name": "Ann",
        "ok": True,
    }
    found = masked(payload, None).document
    assert {key: each.get("like") for key, each in found.items()} == {
        "at": "2000-01-01T01:01:01Z", "day": "01.01.2000", "ms": 10**12, "no": "100000000", "name": None, "ok": None,
    }  # fmt: skip
    other = masked(payload | {"at": "1999-12-31T23:59:59Z", "no": "4242"}, None).document
    assert other == found, "it says nothing of the value but its form"
    tried = stood_in(found, by_form=True)
    chain = jmespath(
        user="name", **{"_event.ordinal": "epoch_ms(at)", "size": "epoch_ms(day, '%d.%m.%Y', 'UTC')"}
    )
    assert compile_spec(chain)(tried)["_event"]["ordinal"] == 946_688_461_000
