"""The types of attributes' values."""

from __future__ import annotations

from decimal import Decimal

from idgraph.model.attributes import AttributeMetadata, AttributeStatus, DataType, EncryptionLevel
from idgraph.model.snapshots import MetadataSnapshot

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
