"""Protobuf payloads as JSON: every value exact, whatever the bytes a result or our error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install -e .[schemas]")
from google.protobuf import descriptor_pb2, struct_pb2

from idgraph.model import canonical
from idgraph.model.errors import EventError, PayloadSchemaError
from tests.support.misfits import fits_or_is_reported
from tests.transforms.payloads.protobuf_files import MONEY, ORDER, field, message, message_class
from transforms.payloads.protobuf import ProtobufFiles, descriptor_set, message_at, serialized_file

ORDERS = ProtobufFiles([MONEY, ORDER])
EMPTY = {"id": 0, "lines": [], "counts": {}, "state": "OPEN", "raw": "", "huge": 0, "share": 0.0}


def read(payload: bytes, name: str = "shop.Order", files: ProtobufFiles = ORDERS) -> Any:
    return canonical.decode(files.decoder(name)(payload))


def test_what_has_no_presence_has_its_default_and_what_has_it_is_left_out() -> None:
    assert read(b"") == EMPTY
    assert read(message_class("shop.Order")(note="").SerializeToString()) == EMPTY | {"note": ""}


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.text(max_size=9),
    st.dictionaries(st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    st.lists(st.text(max_size=3), max_size=3),
)
def test_what_is_written_is_read_as_json(
    number: int, huge: int, text: str, counts: dict[int, float], skus: list[str]
) -> None:
    order = message_class("shop.Order")(id=number, huge=huge, note=text, counts=counts, raw=b"\xff")
    order.total.cents = huge
    order.wrapped.value = number
    order.at.FromJsonString("2024-03-17T10:40:35.010Z")
    for sku in skus:
        order.lines.add(sku=sku)
    found = read(order.SerializeToString())
    assert (found["id"], found["huge"], found["wrapped"]) == (number, huge, number)
    assert found["total"] == {"cents": huge, "currency": ""}
    assert found["counts"] == {str(key): value for key, value in counts.items()}
    assert (found["note"], found["raw"], found["at"]) == (text, "/w==", "2024-03-17T10:40:35.010Z")
    assert [line["sku"] for line in found["lines"]] == skus


def test_enums_are_their_names_and_those_unknown_their_numbers() -> None:
    assert read(b"\x30\x01")["state"] == "PAID"
    assert read(b"\x30\x07")["state"] == 7


@given(st.binary(max_size=60))
def test_other_bytes_are_json_or_our_error(payload: bytes) -> None:
    with fits_or_is_reported():
        read(payload)


def nested(depth: int) -> bytes:
    payload = b""
    for _ in range(depth):
        size, length = len(payload), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        payload = b"\x12" + length + bytes([size]) + payload
    return payload


@pytest.mark.parametrize(
    ("payload", "reported"),
    [
        (b"\xff", "DecodeError"),
        (b"\x0a\x05ab", "DecodeError"),
        (b"\x78\x01", "it has fields that the schema does not know"),
        (message_class("shop.Order")(share=float("nan")).SerializeToString(), "a number is not finite"),
    ],
)
def test_a_payload_that_does_not_fit_is_reported_without_its_values(payload: bytes, reported: str) -> None:
    with pytest.raises(EventError, match=f"bad_payload: .* does not fit its Protobuf schema: {reported}"):
        read(payload)


def test_a_payload_that_nests_without_end_is_our_error() -> None:
    assert read(nested(50), "shop.Order.Line")["below"]["sku"] == ""
    with pytest.raises(EventError, match="bad_payload"):
        read(nested(100_000), "shop.Order.Line")


def test_decimals_keep_every_digit() -> None:
    google = descriptor_pb2.FileDescriptorProto(
        name="google/type/decimal.proto",
        package="google.type",
        syntax="proto3",
        message_type=[message("Decimal", field("value", 1, "STRING"))],
    )
    file = descriptor_pb2.FileDescriptorProto(
        name="p.proto",
        syntax="proto3",
        dependency=["confluent/type/decimal.proto", "confluent/meta.proto", "google/type/decimal.proto"],
        message_type=[
            message(
                "Price",
                field("a", 1, "MESSAGE", ".confluent.type.Decimal"),
                field("b", 2, "MESSAGE", ".google.type.Decimal"),
            )
        ],
    )
    files = ProtobufFiles([google, file])
    unscaled = (-(10**30) - 1).to_bytes(13, "big", signed=True)
    a = b"\x0a" + bytes([len(unscaled)]) + unscaled + b"\x18\x02"
    b = b"\x0a\x1812345678901234567890.1234"[:2] + b"123456789012345678.12345"
    found = read(b"\x0a" + bytes([len(a)]) + a + b"\x12" + bytes([len(b)]) + b, "Price", files)
    assert found == {
        "a": Decimal("-10000000000000000000000000000.01"),
        "b": Decimal("123456789012345678.12345"),
    }
    for wrong in (b"\x0a\x03NaN", b"\x0a\x01x"):
        with pytest.raises(EventError, match="bad_payload"):
            read(b"\x12" + bytes([len(wrong)]) + wrong, "Price", files)
    far = b"\x0a\x01\x01\x18\xff\xff\xff\xff\x07"
    with pytest.raises((EventError, *canonical.MalformedJSON)):
        read(b"\x0a" + bytes([len(far)]) + far, "Price", files)


def test_googles_own_types_are_as_in_json() -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="p.proto",
        syntax="proto3",
        dependency=["google/protobuf/struct.proto"],
        message_type=[message("Any", field("free", 1, "MESSAGE", ".google.protobuf.Struct"))],
    )
    free = struct_pb2.Struct()
    free.update({"a": [1.5, None, {"b": "x"}]})
    content = free.SerializeToString()
    found = read(b"\x0a" + bytes([len(content)]) + content, "Any", ProtobufFiles([file]))
    assert found == {"free": {"a": [1.5, None, {"b": "x"}]}}


def test_extensions_are_reported_by_their_full_names() -> None:
    base = descriptor_pb2.FileDescriptorProto(
        name="base.proto",
        package="shop",
        message_type=[
            message(
                "Base", extension_range=[descriptor_pb2.DescriptorProto.ExtensionRange(start=100, end=200)]
            )
        ],
        extension=[field("colour", 100, "STRING", extendee=".shop.Base")],
    )
    assert read(b"\xa2\x06\x03red", "shop.Base", ProtobufFiles([base])) == {"[shop.colour]": "red"}


def test_messages_are_found_by_their_place() -> None:
    assert message_at(ORDER, [0]) == "shop.Other"
    assert message_at(ORDER, [1, 1]) == "shop.Order.Line"
    with pytest.raises(LookupError):
        message_at(ORDER, [2])


def test_what_is_no_schema_is_reported() -> None:
    with pytest.raises(PayloadSchemaError, match="do not fit together"):
        ProtobufFiles([ORDER])
    with pytest.raises(PayloadSchemaError, match="no message"):
        ORDERS.decoder("shop.None")
    with pytest.raises(PayloadSchemaError, match="not a descriptor set"):
        descriptor_set(b'syntax = "proto3";')
    for text in ('syntax = "proto3";', "AAAA"):
        with pytest.raises(PayloadSchemaError, match="serialized form"):
            serialized_file("x", text)
