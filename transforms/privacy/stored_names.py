"""What a snapshot makes of names that are stored already: identifiers and ids of events, as keyed hashes where policy
protects them by now, as today's events carry them."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.stamps import Stamp
from transforms.privacy.blind_index import BlindIndex, is_hashed
from transforms.privacy.keys import KeyProvider
from transforms.privacy.protected_names import ProtectedNames
from transforms.privacy.secret import NotPicklable

PURPOSE = "tombstones"
NAME_BYTES = 16


class TombstoneNames(NotPicklable):
    """HMAC-SHA-256 of a fragment's id under the purpose key `tombstones`, cut to 128 bits.

    Without the key nobody can test whether a person was erased; with it one can test a guess, which is
    what a tombstone is for. Safe for several threads.
    """

    __slots__ = ("_start",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._start = hmac.new(provider.purpose_key(PURPOSE), digestmod="sha256")

    def __call__(self, fragment_id: str) -> bytes:
        # Copied: to begin again with the key costs twice as much.
        keyed = self._start.copy()
        keyed.update(fragment_id.encode("utf-8", "surrogatepass"))
        return keyed.digest()[:NAME_BYTES]


EVENT = "event"
"""Stands for ids of events where types of identifiers are reported."""


class StoredNames(NotPicklable):
    """Names under one snapshot. What is hashed already stays as it is, whatever policy says by now."""

    def __init__(
        self, snapshot: MetadataSnapshot, blind_index: BlindIndex, protected: ProtectedNames | None = None
    ) -> None:
        self._protected = protected or ProtectedNames(snapshot)
        self._event_id_places = {spec.name: spec.id for spec in snapshot.specs}
        self._scopes: dict[str, set[str | None]] = {}
        for spec in (each for each in snapshot.specs if each.mode == "snapshot"):
            self._scopes.setdefault(spec.scope, set()).add(spec.id)
        self._blind_index = blind_index

    def identifier(self, text: str) -> str:
        """An identifier, or a fragment's id, as it is written today."""
        name = Identifier.parse(text)
        if is_hashed(name.value) or not self._protected.protects(name):
            return text
        return str(self._blind_index.identifier(name))

    def origin(self, origin: Origin) -> Origin:
        """An origin with the event's id as it is written today; the same object where nothing changes."""
        stamp = origin.stamp
        if not self._protects_event_id(self._event_id_places.get(origin.spec.name), stamp.event_id):
            return origin
        return origin._replace(stamp=self._hashed(stamp))

    def marker(self, scope: str, stamp: Stamp) -> Stamp:
        """The stamp of a snapshot event that covered a scope; which spec mapped it is not stored."""
        places = self._scopes.get(scope, {None})
        is_protected = any(self._protects_event_id(place, stamp.event_id) for place in places)
        return self._hashed(stamp) if is_protected else stamp

    def readable(self, identifiers: Iterable[str], origins: Iterable[Origin]) -> set[str]:
        """The types of those identifiers that are written otherwise today, with `EVENT` for ids of events."""
        found = {Identifier.parse(text).type for text in identifiers if self.identifier(text) != text}
        if any(self.origin(origin) is not origin for origin in origins):
            found.add(EVENT)
        return found

    def _protects_event_id(self, place: str | None, event_id: str) -> bool:
        return not is_hashed(event_id) and self._protected.protects_event_id(place, event_id)

    def _hashed(self, stamp: Stamp) -> Stamp:
        hashed = self._blind_index.identifier(Identifier(EVENT, stamp.event_id))
        return stamp._replace(event_id=hashed.value)
