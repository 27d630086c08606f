"""A value to a sealed register: the same for an event that is mapped and for a value that is stored already."""

from __future__ import annotations

from model.attributes import DataType
from model.fragments import Kind, Origin, Register
from model.sealed import SealedValue
from model.snapshots import MetadataSnapshot
from transforms.blind_index import BlindIndex
from transforms.key_holder import KeyHolder
from transforms.schema import DATA_TYPES, ValueToSeal, declared_types
from transforms.sealing import SealingKey


class RegisterSealer(KeyHolder):
    """Seals values under one snapshot: a pure function of data key, origin and value, so that an event and its
    value in the store give the same bytes. Safe for several threads."""

    def __init__(self, snapshot: MetadataSnapshot, blind_index: BlindIndex) -> None:
        self._declared_types: dict[str, DataType] = declared_types(snapshot)
        self._blind_index = blind_index

    def seal(self, key: SealingKey, origin: Origin, what: ValueToSeal) -> Register:
        """The register that an event of this origin writes. Raises SealError, and KeyProviderError for a data
        key that cannot be unwrapped."""
        path, value, is_searchable = what
        token = self.token(path, value) if is_searchable else None
        stamp = origin.stamp
        text = key.seal(value, path, stamp.source, stamp.event_id)
        return Register(origin, Kind.SEALED, str(SealedValue(text, token)))

    def token(self, path: str, value: object) -> str | None:
        """The blind-index token of a searchable value; an array has none."""
        kind = type(value)
        if kind is list:
            return None
        return self._blind_index.token(path, value, self._declared_types.get(path) or DATA_TYPES[kind])
