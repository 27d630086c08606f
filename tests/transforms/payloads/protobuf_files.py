"""Protobuf schemas for tests, as `protoc` would compile them."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

KINDS = descriptor_pb2.FieldDescriptorProto
TIMESTAMP = ".google.protobuf.Timestamp"


def field(name: str, number: int, kind: str, of: str | None = None, **more: Any) -> Any:
    label = KINDS.LABEL_REPEATED if more.pop("repeated", False) else KINDS.LABEL_OPTIONAL
    return KINDS(
        name=name, number=number, type=getattr(KINDS, f"TYPE_{kind}"), type_name=of, label=label, **more
    )


def message(name: str, *fields: Any, **more: Any) -> descriptor_pb2.DescriptorProto:
    return descriptor_pb2.DescriptorProto(name=name, field=fields, **more)


MONEY = descriptor_pb2.FileDescriptorProto(
    name="money.proto",
    package="shop",
    syntax="proto3",
    message_type=[message("Money", field("cents", 1, "UINT64"), field("currency", 2, "STRING"))],
)

_ENTRY = message(
    "CountsEntry", field("key", 1, "INT32"), field("value", 2, "DOUBLE"), options={"map_entry": True}
)
_NESTED = message("Line", field("sku", 1, "STRING"), field("below", 2, "MESSAGE", ".shop.Order.Line"))

ORDER = descriptor_pb2.FileDescriptorProto(
    name="order.proto",
    package="shop",
    syntax="proto3",
    dependency=["money.proto", "google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    enum_type=[
        descriptor_pb2.EnumDescriptorProto(
            name="State",
            value=[
                descriptor_pb2.EnumValueDescriptorProto(name=name, number=n)
                for n, name in enumerate(("OPEN", "PAID"))
            ],
        )
    ],
    message_type=[
        message("Other", field("n", 1, "SINT64")),
        message(
            "Order",
            field("id", 1, "INT64"),
            field("note", 2, "STRING", proto3_optional=True, oneof_index=0),
            field("total", 3, "MESSAGE", ".shop.Money"),
            field("lines", 4, "MESSAGE", ".shop.Order.Line", repeated=True),
            field("counts", 5, "MESSAGE", ".shop.Order.CountsEntry", repeated=True),
            field("state", 6, "ENUM", ".shop.State"),
            field("raw", 7, "BYTES"),
            field("at", 8, "MESSAGE", TIMESTAMP),
            field("huge", 9, "UINT64"),
            field("wrapped", 10, "MESSAGE", ".google.protobuf.Int64Value"),
            field("share", 11, "DOUBLE"),
            nested_type=[_ENTRY, _NESTED],
            oneof_decl=[descriptor_pb2.OneofDescriptorProto(name="_note")],
        ),
    ],
)


def message_class(name: str) -> Any:
    """What writes messages of these files, independently of what reads them."""
    from google.protobuf import wrappers_pb2

    pool = descriptor_pool.DescriptorPool()
    for each in (timestamp_pb2.DESCRIPTOR.serialized_pb, wrappers_pb2.DESCRIPTOR.serialized_pb):
        pool.AddSerializedFile(each)
    for file in (MONEY, ORDER):
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
