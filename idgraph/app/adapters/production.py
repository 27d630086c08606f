"""Persons who were erased in production, for a sandbox: its flow must bring nobody back.

Tombstones are keyed hashes of fragments' ids, which have protected identifiers as keyed hashes themselves. So
a sandbox hashes each identifier by production's keys too, on this machine, while it has it in the clear.
Until it asks, it keeps the names of tombstones alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from idgraph.app.adapters.key_providers import open_provider
from idgraph.app.adapters.stores import PROFILES, open_profiles
from idgraph.model.errors import StoreError
from idgraph.model.identifiers import Identifier
from idgraph.model.tombstones import Tombstone
from transforms.privacy.blind_index import BlindIndex, is_hashed
from transforms.privacy.keys import KeyProvider
from transforms.privacy.protected_names import TombstoneNames


class ErasedInProduction:
    """The tombstones of production by the ids of a sandbox. For one thread; raises StoreError, KeyProviderError."""

    def __init__(self, config: dict[str, Any]) -> None:
        """`config` as of the stores and the key provider of production. Without its keyring nobody was erased there."""
        self._file = Path(config["directory"]) / PROFILES
        is_there = Path(config["keyring"]).exists() or self._file.exists()
        provider = open_provider(config) if is_there else None
        self._names = None if provider is None else TombstoneNames(provider)
        self._hashes = None if provider is None else BlindIndex(provider)
        # The ids that it is asked for are the names in hexadecimal digits already.
        self._store = open_profiles(config, bytes.fromhex) if is_there else None
        self._known: dict[str, set[str]] = {}

    def names(self, identifier: Identifier) -> set[str]:
        """The names of the tombstones that refuse the events of an identifier, whether or not policy of
        production protects it."""
        if self._names is None or self._hashes is None:
            return set()
        return {self._names(str(each)).hex() for each in (identifier, self._hashes.hashed(identifier))}

    def note(self, hashed: Identifier, identifier: Identifier) -> None:
        """Note the sandbox's name for an identifier until it asks for its tombstone."""
        self._known[str(hashed)] = self.names(identifier)

    def tombstones(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        """The tombstones of these fragments of the sandbox, named since it asked last."""
        noted, self._known = self._known, {}
        if self._store is None or not self._file.exists():
            return {}
        pairs = [(name, each) for each in ids for name in self._names_of(each, noted)]
        stored = self._store.tombstones(name for name, _ in pairs)
        joined: dict[str, Tombstone] = {}
        for name, each in pairs:
            if name in stored:
                joined[each] = stored[name].joined(joined.get(each, stored[name]))
        return joined

    def _names_of(self, fragment_id: str, known: dict[str, set[str]]) -> set[str]:
        identifier = Identifier.parse(fragment_id)
        if fragment_id not in known and is_hashed(identifier.value):
            raise StoreError(
                "an identifier cannot be compared with those of persons who were erased in production"
            )
        return known.get(fragment_id) or self.names(identifier)

    def close(self) -> None:
        """Close production's store."""
        if self._store is not None:
            self._store.close()


class SandboxBlindIndex(BlindIndex):
    """The sandbox's own blind index, by whose hashes events are mapped; each identifier that it hashes is
    noted."""

    def __init__(self, provider: KeyProvider, erased: ErasedInProduction) -> None:
        super().__init__(provider)
        self._erased = erased

    def hashed(self, identifier: Identifier) -> Identifier:
        found = super().hashed(identifier)
        self._erased.note(found, identifier)
        return found

    def identifier(self, identifier: Identifier) -> Identifier:
        # A hashed one is stored or asked for: nobody asks for a tombstone then.
        return identifier if is_hashed(identifier.value) else super().hashed(identifier)
