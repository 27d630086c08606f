"""A payload shows nothing that policy protects, and nothing above the reader's clearance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDocument
from tests.retail import CREATED, attribute, lines, snapshot
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
    payload = {"u": "u1", "m": "ann@example.com", "p": "gold", "left": "over", "deep": [{"p": 3}, True, None]}
    found = masked(payload, jmespath(user="u", mail="m", plan="p", size="deep[0].p"))
    assert found.document == {
        "u": "u1",
        "m": SEALED,
        "p": "gold",
        "left": SEALED,
        "deep": [
            {"p": 3},
            {"$protected": True, "type": "true or false"},
            {"$protected": True, "type": "null"},
        ],
    }
    assert found.becomes == {"/u": {"user"}, "/m": {"mail"}, "/p": {"plan"}, "/deep/0/p": {"size"}}


def test_without_a_spec_only_keys_and_types_are_shown() -> None:
    payload = {"name": "Ann", "age": 36, "empty": [], "ann@example.com": 1, "Ann Lee": "x"}
    for chain in (None, jmespath(user="max(name)")):
        found = masked(payload, chain)
        text = json.dumps(found.document)
        assert "Ann" not in text
        assert "36" not in text
        assert "example.com" not in text
        assert list(found.document) == ["name", "age", "empty", "(key 4)", "(key 5)"]
        assert found.document["age"]["type"] == "number"
        assert found.becomes == {}


def test_what_is_above_the_clearance_is_absent() -> None:
    payload = {"u": "u1", "m": "ann@example.com", "p": "gold", "all": ["gold2", "u9"]}
    chain = jmespath(user="u", mail="m", plan="[p, all[0]]", size="all[1]")
    found = masked(payload, chain, lambda path: path not in ("plan", "mail"))
    assert found.document == {"u": "u1", "all": ["u9"]}
    assert set(found.becomes) == {"/u", "/all/0"}


def test_a_value_that_is_a_protected_one_elsewhere_is_sealed() -> None:
    # Where one is missing the other becomes the address: neither shows by itself what it is.
    payload = {"u": "u1", "a": " Ann@example.com", "b": "ann@example.com", "c": "mailto:ann@example.com"}
    chain = jmespath(user="u", mail="a || b", plan="b", size="c")
    assert masked(payload, chain).document == {"u": "u1", "a": SEALED, "b": SEALED, "c": SEALED}


def test_the_ordinal_is_shown_and_the_id_of_the_event_is_not() -> None:
    payload = {"u": "u1", "at": "2024-04-02T09:56:41Z", "id": "i1"}
    chain = [{"operation": "shift", "spec": {"u": "user", "at": "_event.ordinal", "id": "_event.id"}}]
    found = masked(payload, chain, ordinal="_event.ordinal", id="_event.id")
    assert found.document == {"u": "u1", "at": "2024-04-02T09:56:41Z", "id": SEALED}


def test_one_value_that_cannot_be_mapped_is_sealed_and_named() -> None:
    payload = {"p": {"a": "soon", "b": "gold"}, "u": "u1", "m": "ann@example.com"}
    chain = jmespath(user="u", mail="m", plan="p.b", size="epoch_ms(p.a)")
    found = masked(payload, chain)
    assert found.document == {"p": {"a": SEALED, "b": "gold"}, "u": "u1", "m": SEALED}
    assert found.culprits == ["/p/a"]


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
