"""The example specs: what they make of events like those of the example data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from idgraph.model import canonical
from idgraph.model.specs import SpecDefinition
from transforms import compile_spec

EXAMPLES = Path(__file__).parents[3] / "examples"
SPECS = sorted(EXAMPLES.glob("*/specs/*.json"))


def definition(file: Path) -> SpecDefinition:
    return SpecDefinition.model_validate_json(file.read_bytes())


def mapped(example: str, payload: Any, context: dict[str, Any] | None = None) -> Any:
    return compile_spec(definition(EXAMPLES / example).operations)(payload, context)


def records(name: str) -> Iterator[Any]:
    file = EXAMPLES / "retail" / "data" / f"{name}.jsonl.gz"
    if not file.exists():
        pytest.skip("the example data is not there")
    with gzip.open(file) as lines:
        yield from map(canonical.decode, islice(lines, 2000))


@pytest.mark.parametrize("file", SPECS, ids=[file.stem for file in SPECS])
def test_specs_are_active_and_compile(file: Path) -> None:
    spec = definition(file)
    assert spec.status == "active"
    compile_spec(spec.operations)


def test_segment_identify() -> None:
    payload = {
        "timestamp": "2024-03-01T00:01:16.633000+00:00",
        "userId": "0480",
        "anonymousId": "anon",
        "context": {"library": {"name": "x"}, "device": {"model": "iPhone;", "version": "6_1"}},
        "type": "identify",
        "traits": {"name": "Ann Lee", "email": " Ann@Example.COM ", "age": 37, "persona": "floral"},
        "messageId": "m1",
        "platform": "ios",
    }
    assert mapped("retail/specs/segment.json", payload) == {
        "_event": {"id": "m1", "ordinal": 1709251276633},
        "activity": {"lastSeenAt": 1709251276633, "platform": "ios"},
        "identity": {
            "userId": "480",
            "anonymousId": "anon",
            "name": {"full": "Ann Lee"},
            "email": "ann@example.com",
        },
        "device": {"os": "ios", "model": "iPhone;", "osVersion": "6_1"},
        "demographics": {"age": 37},
        "shop": {"persona": "floral"},
    }


def test_segment_track() -> None:
    payload = {
        "timestamp": "2024-03-01T00:01:16.633000+00:00",
        "anonymousId": "anon",
        "type": "track",
        "event": "View",
        "properties": {"productId": "p", "name": "Chair", "price": 49.99, "image": "p.jpg"},
        "messageId": "m2",
        "platform": "web",
    }
    assert mapped("retail/specs/segment.json", payload) == {
        "_event": {"id": "m2", "ordinal": 1709251276633},
        "activity": {
            "lastSeenAt": 1709251276633,
            "platform": "web",
            "lastEvent": "View",
            "view": {"productId": "p", "product": "Chair", "price": 49.99},
        },
        "identity": {"anonymousId": "anon"},
    }


def test_amplitude() -> None:
    payload = {
        "time": 1709251430106,
        "user_id": "00480",
        "device_id": "d",
        "adid": "ad",
        "device_model": "Android",
        "event_type": "$identify",
        "user_properties": {"name": "Ann Lee", "email": "ANN@example.com"},
        "insert_id": "i",
        "platform": "Android",
    }
    assert mapped("retail/specs/amplitude.json", payload) == {
        "_event": {"id": "i", "ordinal": 1709251430106},
        "activity": {"lastSeenAt": 1709251430106, "platform": "android"},
        "identity": {
            "userId": "480",
            "deviceId": "d",
            "name": {"full": "Ann Lee"},
            "email": "ann@example.com",
        },
        "device": {"os": "android", "model": "Android", "advertisingId": "ad"},
    }
    search = {"time": 1, "device_id": "d", "event_type": "Search", "event_properties": {"query": "Ring"}}
    assert mapped("retail/specs/amplitude.json", search)["activity"] == {
        "lastSeenAt": 1,
        "lastEvent": "Search",
        "search": {"query": "Ring"},
    }


def test_orders() -> None:
    payload = {
        "order_id": "R1",
        "created_at": "2024-03-01T00:45:09.776000Z",
        "customer": {"email": " ANN@example.com", "name": {"first": "Ann"}},
        "shipping": {"city": "Troy", "postal_code": "34810"},
        "cart": {"id": "c", "total": "154.97", "items": 3},
        "guest": False,
    }
    assert mapped("retail/specs/orders.json", payload) == {
        "_event": {"id": "R1", "ordinal": 1709253909776},
        "identity": {"email": "ann@example.com", "name": {"first": "Ann"}},
        "orders": {
            "last": {
                "id": "R1",
                "at": 1709253909776,
                "total": 154.97,
                "items": 3,
                "cartId": "c",
                "guest": False,
            }
        },
        "address": {"shipping": {"city": "Troy", "postalCode": "34810"}},
    }


def test_audit_keeps_everything_and_finds_who_acted() -> None:
    payload = {"actor": {"user": {"email": "Ann@Example.com"}}, "n": None, "l": [1, {"a": 2}]}
    envelope = {"id": "r1", "source": "Some.Product"}
    assert mapped("security/specs/audit.json", payload, envelope) == {
        "audit": payload,
        "actor": {"id": "ann@example.com"},
        "record": {"id": "r1"},
    }
    assert mapped("security/specs/audit.json", {"actor_id": 123}, envelope)["actor"] == {"id": "123"}
    assert mapped("security/specs/audit.json", {"x": 1}, envelope) == {
        "audit": {"x": 1},
        "record": {"id": "r1"},
    }


@pytest.mark.parametrize("name", ["segment", "amplitude", "orders"])
def test_real_events_give_no_nulls_and_no_empty_objects(name: str) -> None:
    spec = definition(EXAMPLES / "retail" / "specs" / f"{name}.json")
    transform = compile_spec(spec.operations)
    for payload in records(name):
        before = json.dumps(payload)
        out = transform(payload)
        assert json.dumps(payload) == before
        assert type(out["_event"]["ordinal"]) is int
        text = json.dumps(out)
        assert "null" not in text
        assert "{}" not in text
