"""A spec that puts at another path what it puts at one: all else stays as it is."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from idgraph.model.errors import SpecError
from idgraph.model.specs import SpecDefinition
from metadata_service.attributes.lineage import writes
from metadata_service.documents.reading import read_definition
from metadata_service.specs.moves import moved
from tests.retail import EXAMPLE, records
from transforms import compile_spec

SPECS = {each.source: each for each in map(read_definition, sorted((EXAMPLE / "specs").glob("*.json")))}
NOTHING = object()
EVENT = {"source": "s", "type": "t", "id": "i", "ordinal": 1, "position": "p"}


def pop(tree: dict[str, Any], path: str) -> Any:
    *above, last = path.split(".")
    for key in above:
        tree = tree.get(key, {})
    return tree.pop(last, NOTHING)


def put(tree: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        tree = tree.setdefault(key, {})
    tree[last] = value


def without_empty(tree: dict[str, Any]) -> dict[str, Any]:
    found = {key: without_empty(each) if isinstance(each, dict) else each for key, each in tree.items()}
    return {key: each for key, each in found.items() if each != {}}


@pytest.mark.parametrize(
    ("source", "path", "into"),
    [
        ("segment", "identity.email", "contact.mail"),
        ("segment", "activity.lastEvent", "lastEvent"),
        ("segment", "activity.purchase.total", "activity.spent"),
        ("orders", "address.shipping.city", "place.city"),
        ("orders", "orders.last.total", "orders.total"),
        ("amplitude", "identity.deviceId", "device.id"),
    ],
)
def test_real_events_are_mapped_alike_but_for_the_path(source: str, path: str, into: str) -> None:
    before, after = SPECS[source], moved(SPECS[source], path, into)
    one, other = compile_spec(before.operations), compile_spec(after.operations)
    count = 0
    for record in records(3000):
        if record.source != source:
            continue
        payload = json.loads(record.value)
        expected, found = (each(copy.deepcopy(payload), EVENT) for each in (one, other))
        if isinstance(expected, dict):
            value = pop(expected, path)
            if value is not NOTHING:
                put(expected, into, value)
                count += 1
            assert without_empty(found) == without_empty(expected)
    assert count
    assert {each.path for each in after.identifiers} == {
        into if each.path == path else each.path for each in before.identifiers
    }


@pytest.mark.parametrize(
    ("path", "into", "place"),
    [
        ("no.such.path", "x", "/path"),
        ("identity.email", "identity.userId", "/into"),
        ("identity.email", "identity.email.work", "/into"),
        ("identity.email", "identity", "/into"),
        ("identity.email", "a.*", "/into"),
        ("identity.email", "a..b", "/into"),
    ],
)
def test_what_operations_read_otherwise_is_refused(path: str, into: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        moved(SPECS["segment"], path, into)
    assert caught.value.pointer == place


def test_a_spec_of_one_operation_of_jmespath_can_be_moved() -> None:
    definition = SpecDefinition.model_validate(
        {
            "name": "n",
            "source": "s",
            "specification_type": "jmespath",
            "operations": {"operation": "jmespath", "spec": {"a.b": "x", "a.c": "y"}},
            "identifiers": [{"type": "t", "path": "a.b", "primary": True}],
        }
    )
    after = moved(definition, "a.b", "c")
    assert compile_spec(after.operations)({"x": 1, "y": [1, None]}, EVENT) == {"c": 1, "a": {"c": [1, None]}}
    shift = [{"operation": "shift", "spec": {"x": "a.b"}}]
    shifted = moved(definition.model_copy(update={"operations": shift}), "a.b", "c.d")
    assert compile_spec(shifted.operations)({"x": None}, EVENT)["c"] == {"d": None}, "null deletes"
    assert after.identifiers[0].path == "c"
    assert (writes(after, "a.b"), writes(after, "a.c"), writes(after, "c")) == (False, True, True)
