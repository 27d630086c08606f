"""The types of attributes' values."""

from __future__ import annotations

from decimal import Decimal

from model.attributes import AttributeStatus, DataType, EncryptionLevel
from model.snapshots import MetadataSnapshot

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
    return {
        attribute.path: attribute.data_type
        for attribute in snapshot.attributes
        if attribute.encryption is EncryptionLevel.SEARCHABLE and attribute.status is AttributeStatus.ACTIVE
    }
