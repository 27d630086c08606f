"""Avro payloads as JSON: every value exact, whatever the bytes a result or our error."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro", reason="fastavro is not installed: pip install -e .[schemas]")
import fastavro

from idgraph.model import canonical
from idgraph.model.errors import EventError, PayloadSchemaError
from tests.support.misfits import fits_or_is_reported
from transforms.payloads.avro import avro_decoder

NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def read(schema: Any, payload: bytes) -> Any:
    return canonical.decode(avro_decoder(json.dumps(schema))(payload))


LONGS = st.integers(-(2**63), 2**63 - 1)
ANY = record(
    ("long", "long"),
    ("text", "string"),
    ("flag", "boolean"),
    ("either", ["null", "long", "string"]),
    ("list", {"type": "array", "items": "double"}),
    ("map", {"type": "map", "values": record(("x", ["null", "int"])) | {"name": "Inner"}}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}),
)


@given(
    st.fixed_dictionaries(
        {
            "long": LONGS,
            "text": st.text(max_size=9),
            "flag": st.booleans(),
            "either": st.none() | LONGS | st.text(max_size=3),
            "list": st.lists(st.floats(), max_size=4),
            "map": st.dictionaries(
                st.text(max_size=3), st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)}), max_size=3
            ),
            "kind": st.sampled_from("ab"),
        }
    )
)
def test_what_is_written_is_read_as_json(value: dict[str, Any]) -> None:
    payload = written(ANY, value)
    if all(map(isfinite, value["list"])):
        assert read(ANY, payload) == value
    else:
        with pytest.raises(EventError, match=r"bad_payload: .* not finite"):
            read(ANY, payload)


@given(st.integers(-(10**40), 10**40), st.integers(0, 60))
def test_a_decimal_keeps_every_digit_even_those_beyond_its_precision(unscaled: int, scale: int) -> None:
    length = unscaled.bit_length() // 8 + 1
    content = unscaled.to_bytes(length, "big", signed=True)
    number = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": scale}
    narrow = number | {"precision": max(1, scale)}
    for schema in (number, narrow):
        assert Decimal(str(read(record(("d", schema)), written("bytes", content))["d"])) == Decimal(
            f"{unscaled}E-{scale}"
        )
    fixed = {"type": "fixed", "name": "F", "size": length, "logicalType": "decimal", "precision": 1}
    assert read(record(("d", fixed)), content)["d"] == unscaled


def test_times_are_text_and_bytes_are_base64() -> None:
    def logical(base: str, name: str) -> dict[str, str]:
        return {"type": base, "logicalType": name}

    schema = record(
        ("millis", logical("long", "timestamp-millis")),
        ("micros", logical("long", "timestamp-micros")),
        ("day", logical("int", "date")),
        ("id", logical("string", "uuid")),
        ("unknown", logical("long", "eons")),
        ("raw", "bytes"),
        ("badly", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": -1}),
    )
    at = datetime(2024, 3, 17, 10, 40, 35, 10_000, UTC)
    named = uuid.UUID(int=7)
    content = {"millis": at, "micros": at, "day": date(2024, 3, 17), "id": named, "unknown": 2**62}
    writable = record(
        *((field["name"], field["type"]) for field in schema["fields"][:-1]), ("badly", "bytes")
    )
    assert read(schema, written(writable, {**content, "raw": b"\xff", "badly": b"\x01"})) == {
        "millis": "2024-03-17T10:40:35.010000Z",
        "micros": "2024-03-17T10:40:35.010000Z",
        "day": "2024-03-17",
        "id": str(named),
        "unknown": 2**62,
        "raw": "/w==",
        "badly": "AQ==",
    }
    assert read("long", written("long", 2**63 - 1)) == 2**63 - 1


@given(st.binary(max_size=60))
def test_other_bytes_are_json_or_our_error(payload: bytes) -> None:
    for schema in (ANY, NODE, record(("t", {"type": "long", "logicalType": "timestamp-millis"}))):
        with fits_or_is_reported():
            read(schema, payload)


def test_a_payload_that_nests_without_end_is_our_error_and_not_the_end_of_the_process() -> None:
    payload = b"\x02\x02" * 200_000 + b"\x02\x00"
    with pytest.raises(EventError, match=r"bad_payload: .*RecursionError"):
        read(NODE, payload)
    shallow = read(NODE, b"\x02\x02" * 50 + b"\x02\x00")
    assert shallow["next"]["next"]["value"] == 1
    inside = record(
        ("tree", NODE), ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    )
    assert read(inside, b"\x02\x00" + written("bytes", b"\x30\x39")) == {
        "tree": {"value": 1, "next": None},
        "price": 123.45,
    }


@pytest.mark.parametrize(
    ("payload", "reported"),
    [
        (b"", "EOFError"),
        (b"\x02\x00\x00", "bytes are left over"),
        (b"\x02\x08", "IndexError"),
        (b"\x02\x01" + b"\xff" * 12, "OverflowError|EOFError|IndexError"),
    ],
)
def test_a_payload_that_does_not_fit_is_reported_without_its_values(payload: bytes, reported: str) -> None:
    with pytest.raises(EventError, match=f"does not fit its Avro schema: ({reported})$"):
        read(NODE, payload)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": record()},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {
            "type": "map",
            "values": {"type": "array", "items": record(("n", "null"), ("m", record() | {"name": "M"}))},
        },
    ],
)
def test_an_array_of_what_takes_no_bytes_is_refused(schema: Any) -> None:
    with pytest.raises(PayloadSchemaError, match="takes no bytes"):
        avro_decoder(json.dumps(schema))


@pytest.mark.parametrize(
    "text", ["", "{", "[", '"Other"', "{}", '{"type": "record"}', "7", "null", "[" * 5000]
)
def test_what_is_no_schema_is_reported(text: str) -> None:
    with pytest.raises(PayloadSchemaError, match="no Avro schema"):
        avro_decoder(text)


def test_a_schema_may_be_built_on_others() -> None:
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "shop",
        "fields": [{"name": "cents", "type": "long"}],
    }
    schema = record(("price", "shop.Money"))
    decode = avro_decoder(json.dumps(schema), [json.dumps(money)])
    assert json.loads(decode(b"\x0e")) == {"price": {"cents": 7}}
    with pytest.raises(PayloadSchemaError):
        avro_decoder(json.dumps(schema))
