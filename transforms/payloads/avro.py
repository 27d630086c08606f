"""Avro payloads as JSON.

Bytes and fixed are base64, enums their symbols, a value of a union stands as itself. Decimals are numbers with all
their digits; times of day, dates and times are text as in RFC 3339. Other logical types are as what they are based on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from math import isfinite
from typing import Any

# Its C functions count no depth: nested deeply enough, a payload would take the process with it.
import fastavro._read_py as careful
import fastavro.read as quick
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, PayloadSchemaError
from transforms.payloads import Decode, exact_decimal

_EXACT = "exact-decimal"
"""Our reading of `decimal`: the library's rounds a number that has more digits than its schema says."""


def _decimal(content: bytes, schema: Mapping[str, Any], _: Any = None) -> Decimal:
    return exact_decimal(content, schema.get("scale", 0))


for _readers in (quick.LOGICAL_READERS, careful.LOGICAL_READERS):
    _readers.update({f"{base}-{_EXACT}": _decimal for base in ("bytes", "fixed")})


def avro_decoder(text: str, references: Sequence[str] = ()) -> Decode:
    """A decoder of payloads of a schema, in JSON, that may name types of `references`.

    Raises PayloadSchemaError for one that is malformed, or by which a few bytes could stand for any amount of values.
    """
    named: dict[str, Any] = {}
    try:
        for each in references:
            parse_schema(_exact(json.loads(each)), named)
        schema = parse_schema(_exact(json.loads(text)), named)
        seen = _Seen(schema, named)
    except (
        SchemaParseException,
        UnknownType,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        raise PayloadSchemaError("the schema is no Avro schema") from None
    if seen.is_endless:
        raise PayloadSchemaError(
            "the Avro schema has an array whose element takes no bytes, so a payload could hold any number of them"
        )
    library: Any = careful if seen.is_recursive else quick

    def decode(payload: bytes) -> bytes:
        stream = BytesIO(payload)
        try:
            value = library.schemaless_reader(stream, schema, None)
            if stream.tell() != len(payload):
                raise _misfit("bytes are left over")
            if seen.has_floats and not _is_finite(value):
                raise _misfit("a number is not finite, which JSON cannot say")
            return canonical.encode_ordered(value)
        except EventError:
            raise
        except Exception as error:
            # Only the type: the library's messages quote the payload.
            raise _misfit(type(error).__name__) from None

    return decode


def _misfit(reason: str) -> EventError:
    return EventError(DeadLetterReason.BAD_PAYLOAD, f"the payload does not fit its Avro schema: {reason}")


def _exact(schema: Any) -> Any:
    """A schema whose decimals are read by our own reader."""
    if isinstance(schema, list):
        return [_exact(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    exact = {
        name: _exact(value) if name in ("type", "fields", "items", "values") else value
        for name, value in schema.items()
    }
    if exact.get("logicalType") == "decimal":
        scale = exact.get("scale", 0)
        # The specification has a wrong one be read as the bytes that it is based on.
        is_right = type(scale) is int and scale >= 0 and exact.get("type") in ("bytes", "fixed")
        exact["logicalType"] = _EXACT if is_right else "none"
    return exact


class _Seen:
    """The facts of a schema."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self.is_recursive = self.is_endless = self.has_floats = False
        self._named = named
        self._sizes: dict[str, bool] = {}
        self._takes_bytes(schema, frozenset())

    def _takes_bytes(self, schema: Any, around: frozenset[str]) -> bool:
        """Whether each value takes at least a byte."""
        if isinstance(schema, list):
            for each in schema:
                self._takes_bytes(each, around)
            return True
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self._takes_bytes(kind, around)
        if kind in self._named and kind not in ("record", "enum", "fixed", "error"):
            return self._of_name(kind, around)
        self.has_floats |= kind in ("float", "double")
        match kind:
            case "array" | "map":
                takes = self._takes_bytes(schema["items" if kind == "array" else "values"], around)
                self.is_endless |= kind == "array" and not takes
                return True
            case "record" | "error":
                inside = around | {schema["name"]}
                self._sizes[schema["name"]] = any(list(self._fields(schema, inside)))
                return self._sizes[schema["name"]]
            case "fixed":
                return bool(schema["size"])
        return bool(kind != "null")

    def _of_name(self, name: str, around: frozenset[str]) -> bool:
        if name in around:
            self.is_recursive = True
            return True
        if name not in self._sizes:
            self._sizes[name] = self._takes_bytes(self._named[name], around)
        return self._sizes[name]

    def _fields(self, schema: Mapping[str, Any], inside: frozenset[str]) -> Iterator[bool]:
        return (self._takes_bytes(field["type"], inside) for field in schema["fields"])


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list) or all(map(_is_finite, value))
