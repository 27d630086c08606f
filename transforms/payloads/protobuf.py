"""Protobuf payloads as JSON.

Fields have the names of the schema. A field without presence has its default where nothing was written; one with
presence is left out. Integers are numbers, whatever their size; bytes are base64, enums their names; Google's own types
are as in Protobuf's JSON form, and decimals of Confluent and Google are numbers with all their digits.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from graphlib import CycleError, TopologicalSorter
from math import isfinite
from typing import Any, NamedTuple

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    unknown_fields,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, PayloadSchemaError
from transforms.payloads import Decode, exact_decimal

_KNOWN = (
    *(any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2),
    wrappers_pb2,
)
"""Files that every schema may import."""

_AS_JSON = frozenset(
    f"google.protobuf.{name}"
    for name in ("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue")
)
_WRAPPERS = frozenset(f"google.protobuf.{each}" for each in wrappers_pb2.DESCRIPTOR.message_types_by_name)

Convert = Callable[[Any], Any]


class _Field(NamedTuple):
    name: str
    has_presence: bool
    convert: Convert


def descriptor_set(content: bytes) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files of what `protoc --include_imports --descriptor_set_out` writes. Raises PayloadSchemaError."""
    try:
        return list(descriptor_pb2.FileDescriptorSet.FromString(content).file)
    except DecodeError:
        raise PayloadSchemaError("not a descriptor set, as `protoc --descriptor_set_out` writes it") from None


def in_order(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> list[descriptor_pb2.FileDescriptorProto]:
    """Each file after those that it imports. Raises PayloadSchemaError."""
    named = {file.name: file for file in files}
    try:
        order = TopologicalSorter({name: file.dependency for name, file in named.items()}).static_order()
        return [named[name] for name in order if name in named]
    except CycleError:
        raise PayloadSchemaError("the files of the Protobuf schema import each other") from None


def serialized_file(name: str, text: str) -> descriptor_pb2.FileDescriptorProto:
    """One file out of its base64, under the name by which others import it. Raises PayloadSchemaError."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise PayloadSchemaError(
            "the registry does not give the Protobuf schema in its serialized form"
        ) from None
    file.name = name
    return file


def message_at(file: descriptor_pb2.FileDescriptorProto, places: Iterable[int]) -> str:
    """The full name of a message by its place in its file, and in the messages around it. Raises LookupError."""
    first, *rest = places
    message = file.message_type[first]
    names = [file.package, message.name] if file.package else [message.name]
    for each in rest:
        message = message.nested_type[each]
        names.append(message.name)
    return ".".join(names)


class ProtobufFiles:
    """Schema files, each after those that it imports."""

    def __init__(self, files: Iterable[descriptor_pb2.FileDescriptorProto]) -> None:
        """Raises PayloadSchemaError for files that do not fit together."""
        self._pool = descriptor_pool.DescriptorPool()
        self._fields: dict[str, list[_Field]] = {}
        known = {module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb for module in _KNOWN}
        given = {file.name: file for file in files}
        try:
            for name, content in known.items():
                if name not in given:
                    self._pool.AddSerializedFile(content)
            for file in (*_of_confluent(given), *given.values()):
                self._pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError, KeyError):
            raise PayloadSchemaError("the files of the Protobuf schema do not fit together") from None

    def decoder(self, message: str) -> Decode:
        """A decoder of payloads of a message, by its full name. Raises PayloadSchemaError when there is none."""
        try:
            made = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(message))
        except KeyError:
            raise PayloadSchemaError(f"the Protobuf schema has no message {message}") from None

        def decode(payload: bytes) -> bytes:
            try:
                return canonical.encode_ordered(self._message(made.FromString(payload)))
            except EventError:
                raise
            except Exception as error:
                # Only the type: messages may quote the payload.
                raise _misfit(type(error).__name__) from None

        return decode

    def _message(self, message: Any) -> dict[str, Any]:
        if len(unknown_fields.UnknownFieldSet(message)):
            raise _misfit("it has fields that the schema does not know")
        descriptor = message.DESCRIPTOR
        fields = self._fields.get(descriptor.full_name)
        if fields is None:
            fields = self._fields[descriptor.full_name] = list(self._compiled(descriptor.fields))
        values = {
            field.name: field.convert(getattr(message, field.name))
            for field in fields
            if not field.has_presence or message.HasField(field.name)
        }
        if descriptor.is_extendable:
            for field, value in message.ListFields():
                if field.is_extension:
                    values[f"[{field.full_name}]"] = self._convert(field)(value)
        return values

    def _compiled(self, fields: Iterable[Any]) -> Iterator[_Field]:
        for field in fields:
            yield _Field(field.name, field.has_presence, self._convert(field))

    def _convert(self, field: Any) -> Convert:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            one = self._convert_one(field.message_type.fields_by_name["value"])
            return lambda entries: {_key(key): one(value) for key, value in entries.items()}
        one = self._convert_one(field)
        return (lambda values: [one(each) for each in values]) if field.is_repeated else one

    def _convert_one(self, field: Any) -> Convert:
        if field.message_type is not None:
            return _SPECIAL.get(field.message_type.full_name, self._message)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return _finite if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT) else _same


def _misfit(reason: str) -> EventError:
    return EventError(DeadLetterReason.BAD_PAYLOAD, f"the payload does not fit its Protobuf schema: {reason}")


def _same(value: Any) -> Any:
    # Bytes too, which JSON has as base64.
    return value


def _finite(value: float) -> float:
    if not isfinite(value):
        raise _misfit("a number is not finite, which JSON cannot say")
    return value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _wrapped(message: Any) -> Any:
    return _finite(message.value) if isinstance(message.value, float) else message.value


def _google_decimal(message: Any) -> Decimal:
    try:
        value = Decimal(message.value)
    except InvalidOperation:
        raise _misfit("a decimal is no number") from None
    if not value.is_finite():
        raise _misfit("a number is not finite, which JSON cannot say")
    return value


_SPECIAL: Mapping[str, Convert] = {
    **dict.fromkeys(_AS_JSON, json_format.MessageToDict),
    **dict.fromkeys(_WRAPPERS, _wrapped),
    "confluent.type.Decimal": lambda message: exact_decimal(message.value, message.scale),
    "google.type.Decimal": _google_decimal,
}


def _of_confluent(given: Mapping[str, Any]) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """The registry's own files, which schemas import and it does not hand out."""
    imported = {each for file in given.values() for each in file.dependency} - given.keys()
    if "confluent/meta.proto" in imported:
        # Options for annotations, which payloads have none of.
        yield descriptor_pb2.FileDescriptorProto(name="confluent/meta.proto", syntax="proto3")
    for name in ("confluent/type/decimal.proto", "confluent/types/decimal.proto"):
        if name in imported:
            kinds = descriptor_pb2.FieldDescriptorProto
            decimal = descriptor_pb2.DescriptorProto(name="Decimal")
            for number, (field, kind) in enumerate(
                (("value", kinds.TYPE_BYTES), ("precision", kinds.TYPE_UINT32), ("scale", kinds.TYPE_INT32)),
                1,
            ):
                decimal.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
            yield descriptor_pb2.FileDescriptorProto(
                name=name, package="confluent.type", syntax="proto3", message_type=[decimal]
            )
