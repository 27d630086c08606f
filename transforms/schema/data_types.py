"""The types of attributes' values."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any

from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata, AttributeStatus, DataType, EncryptionLevel
from idgraph.model.snapshots import MetadataSnapshot

MAX_ARRAY_DEPTH = 64
"""Arrays and objects within an array, one inside the other."""

MAX_INTEGER_BITS = 13_000
"""About 3,900 digits: Python writes no integer of more than 4,300."""

MAX_EXPONENT = 6144
"""The digits of IEEE 754 decimal128, as `idgraph.model.canonical` reads it."""


def problem(value: Any) -> str | None:
    """The reason why a scalar or an array cannot be stored, without the value; None for one that can."""
    return _problem(value, MAX_ARRAY_DEPTH)


def canonical_value(value: Any) -> Any:
    """A storable array or decimal as it will be when it is read again: 0.10 is 0.1."""
    return canonical.decode(canonical.encode(value))


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: halves of surrogate pairs cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problem(value: Any, depth: int) -> str | None:
    kind = type(value)
    if kind is str:
        return None if is_text(value) else "text that is not valid Unicode"
    if kind is int:
        return None if value.bit_length() <= MAX_INTEGER_BITS else "an integer of too many digits"
    if kind is float:
        return None if isfinite(value) else "not a finite number"
    if kind is Decimal:
        return _decimal_problem(value)
    if kind is list:
        return _first_problem(value, depth)
    if kind is dict:
        return _first_problem(value, depth) or _first_problem(value.values(), depth)
    return None


def _decimal_problem(value: Decimal) -> str | None:
    if not value.is_finite():
        return "not a finite number"
    return "a number out of range" if abs(value.adjusted()) > MAX_EXPONENT else None


def _first_problem(values: Any, depth: int) -> str | None:
    if not depth:
        return f"an array nested more than {MAX_ARRAY_DEPTH} deep"
    return next((found for each in values if (found := _problem(each, depth - 1))), None)


DATA_TYPES = {
    str: DataType.STRING,
    int: DataType.INTEGER,
    float: DataType.NUMBER,
    Decimal: DataType.NUMBER,
    bool: DataType.BOOLEAN,
    list: DataType.ARRAY,
}


def declared_types(snapshot: MetadataSnapshot) -> dict[str, DataType]:
    """The types that the blind index reads searchable values as, by path, so that a search for `42` finds
    what one source sends as a number and another as text.

    Only of attributes that an admin declared: a discovered type depends on which event came first.
    """
    types = ((attribute.path, declared_type(attribute)) for attribute in snapshot.attributes)
    return {path: data_type for path, data_type in types if data_type is not None}


def declared_type(attribute: AttributeMetadata) -> DataType | None:
    """The type as which the blind index reads values of one attribute, if it has one."""
    is_read = (
        attribute.encryption is EncryptionLevel.SEARCHABLE and attribute.status is AttributeStatus.ACTIVE
    )
    return attribute.data_type if is_read else None
