"""Protect: identifiers are normalised and hashed, and values are sealed, as rules and policy say; nothing else does either.

Plaintext that policy protects does not leave this stage (law 3). An event whose values cannot be sealed becomes a dead
letter and hurts no other (law 5).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, KeyProviderError, SealError
from idgraph.model.fragments import NO_ENTRIES, Kind, Register
from idgraph.model.identifiers import MOST_BYTES, Identifier
from idgraph.model.stamps import Stamp
from ingestion.stages.dead_letters import BatchDeadLetters
from ingestion.stages.map_output import EventStates, MapOutput, MappedChunk, MappedEvent
from merge.identity.rules import Rules
from merge.policies import POLICIES
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.sealing import DataKeys, SealingKey, UnusableKey
from transforms.privacy.stored_values import RegisterSealer
from transforms.schema.attribute_nodes import Leaves
from transforms.spec.mapping import CompiledSnapshot, MappedPayload, MappingSpec

_SURELY_SHORT = MOST_BYTES // 4
"""A character has at most four bytes."""

FetchedKeys = dict[str, SealingKey] | KeyProviderError
"""The data keys of a chunk's fragments, or why there are none."""


class Sealed(NamedTuple):
    """The sealed registers of an event by path, and the entries of arrays that a policy takes by their elements:
    each has its own sealed value and token, as an element that was stored before it was protected."""

    registers: dict[str, Register]
    entries: Mapping[str, Sequence[Register]] = NO_ENTRIES


class Unsealed(NamedTuple):
    """The reason why the values of an event cannot be sealed. `detail` quotes none of them."""

    reason: DeadLetterReason
    detail: str


_NOTHING = Sealed({})


class ProtectedChunk(NamedTuple):
    """A chunk's events as a `MappedChunk` has them; the others with their sealed values."""

    plain: EventStates
    others: dict[str, list[tuple[MappedEvent, Sealed]]]


class EventNames(NamedTuple):
    """The stored names and order of an event. `retracts` as of `MappedEvent`."""

    fragment_id: str
    identifiers: tuple[Identifier, ...]
    stamp: Stamp
    retracts: str | None


class _Hashes(dict[Identifier, Identifier]):
    """The hashed form of the identifiers of a chunk."""

    def __init__(self, blind_index: BlindIndex) -> None:
        super().__init__()
        self._blind_index = blind_index

    def __missing__(self, identifier: Identifier) -> Identifier:
        hashed = self[identifier] = self._blind_index.hashed(identifier)
        return hashed


class _Normalised(dict[Identifier, Identifier | None]):
    """The normalised form of the identifiers of a chunk; None for blocked ones."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, identifier: Identifier) -> Identifier | None:
        normal = self[identifier] = self._rules.normal(identifier)
        return normal


class Protector:
    """Protects the events of one map task under one snapshot. Not safe for several threads."""

    def __init__(
        self,
        snapshot: CompiledSnapshot,
        data_keys: DataKeys,
        blind_index: BlindIndex,
        dead_letters: BatchDeadLetters,
        stops_without_keys: bool = True,
    ) -> None:
        """`stops_without_keys`: KeyServiceError stops the task while the key service is away; else the events that need
        it become dead letters."""
        self._names = snapshot.protected_names
        self._policies = snapshot.attributes.policies
        self._sealer = RegisterSealer(snapshot.attributes, blind_index)
        self._data_keys = data_keys
        self._blind_index = blind_index
        self._dead_letters = dead_letters
        self._stops_without_keys = stops_without_keys
        self._hashes = _Hashes(blind_index)
        self._normalised = _Normalised(Rules(snapshot.snapshot.identity_rules))
        self.identifiers = self._names.protector(self._normalised.__getitem__, self._hashes.__getitem__)
        """The identifiers of an event as they are stored. Nothing if the first, which names the fragment, is blocked."""

    def forget_identifiers(self) -> None:
        """Drop the plaintext of the identifiers that were hashed. A chunk ends with it."""
        self._hashes.clear()
        self._normalised.clear()

    def names(self, mapped: MappedPayload, spec: MappingSpec, leaves: Leaves) -> EventNames:
        """The protected names of an event that a spec mapped. `leaves` take over the protected stamp. Raises EventError
        for a primary identifier that no store takes, or where the rules block all that can name it."""
        identifiers = self.identifiers(mapped.identifiers) or self._renamed(mapped.identifiers, spec.naming)
        fragment_id = str(identifiers[0])
        if len(fragment_id) > _SURELY_SHORT and len(fragment_id.encode(errors="surrogatepass")) > MOST_BYTES:
            raise EventError(
                DeadLetterReason.LONG_IDENTIFIER,
                f"the primary identifier has more than the {MOST_BYTES:,} bytes that every store takes",
            )
        stamp = mapped.stamp
        place = self._names.place_of(spec.document, spec.document.id)
        event_id = self._event_id(stamp.event_id, place)
        if event_id != stamp.event_id:
            stamp = stamp._replace(event_id=event_id)
            for path, register in leaves.plain.items():
                leaves.plain[path] = register._replace(origin=register.origin._replace(stamp=stamp))
        retracts = spec.retracted(mapped.output)
        if retracts:
            other = self._names.place_of(spec.document, spec.document.retracts)
            retracts = self._event_id(retracts, place, other)
        return EventNames(fragment_id, identifiers, stamp, retracts)

    def _event_id(self, event_id: str, *places: str | None) -> str:
        """An event's id as it is stored: hashed if it is protected at one of the places that it is read from. A stamp is
        stored as it is, beside the values: an id that is a sealed attribute must not be."""
        if any(self._names.protects_event_id(each, event_id) for each in places):
            return self._blind_index.identifier(Identifier("event", event_id)).value
        return event_id

    def _renamed(self, identifiers: tuple[Identifier, ...], naming: Container[str]) -> tuple[Identifier, ...]:
        """An event whose primary identifier is blocked is named by the next one that can name it."""
        others = [each for each in identifiers if self._normalised[each] is not None]
        for each in others:
            if each.type in naming:
                return self.identifiers((each, *(other for other in others if other != each)))
        raise EventError(
            DeadLetterReason.MISSING_IDENTIFIER,
            f"the identity rules block the {identifiers[0].type}, and no other identifier can name the profile",
        )

    def seal(self, chunk: MappedChunk, output: MapOutput) -> ProtectedChunk:
        """Seal the values of a chunk's events. Raises StoreError when the key store is away, and KeyServiceError when
        the task is to stop then."""
        keys = self._fetch_keys(list(chunk.to_seal))
        protected = ProtectedChunk(chunk.plain, {})
        for name, events in chunk.others.items():
            kept = protected.others[name] = []
            for event, sealed in zip(events, self._seal_events(keys, events), strict=True):
                if isinstance(sealed, Unsealed):
                    spec = event.origin.spec
                    self._dead_letters.add(
                        output, event.record, "encrypt", sealed.reason, sealed.detail, spec
                    )
                else:
                    output.protected += len(event.leaves.to_seal)
                    kept.append((event, sealed))
        return protected

    def _fetch_keys(self, fragment_ids: list[str]) -> FetchedKeys:
        try:
            keys = self._data_keys.fetch(sorted(fragment_ids), create=True) if fragment_ids else {}
        except KeyProviderError as error:
            return error
        if self._stops_without_keys:
            for key in keys.values():
                if isinstance(key, UnusableKey) and (away := key.service_error()):
                    raise away
        return keys

    def _seal_events(self, keys: FetchedKeys, events: Sequence[MappedEvent]) -> list[Sealed | Unsealed]:
        """The sealed values of each event of one fragment. A register that a later event replaces is left out: sealing
        is the dearest step of an event."""
        if not any(event.leaves.to_seal for event in events):
            return [_NOTHING] * len(events)
        try:
            key = _key(keys, events[0].fragment_id)
            latest = self._sealer.seal_latest(key, [(each.origin, each.leaves.to_seal) for each in events])
            entries = (
                [self._entries(key, event) for event in events] if self._policies else repeat(NO_ENTRIES)
            )
            sealed: list[Sealed | Unsealed] = [*map(Sealed, latest, entries)]
            key.rest()
            return sealed
        except Exception:
            # One by one: a register that only an event without a seal would replace must be sealed after all.
            return [self._seal_event(keys, event) for event in events]

    def _seal_event(self, keys: FetchedKeys, event: MappedEvent) -> Sealed | Unsealed:
        to_seal = event.leaves.to_seal
        if not to_seal:
            return _NOTHING
        try:
            key = _key(keys, event.fragment_id)
            registers = {what.path: self._sealer.seal(key, event.origin, what) for what in to_seal}
            return Sealed(registers, self._entries(key, event))
        except (SealError, KeyProviderError) as error:
            return Unsealed(DeadLetterReason.KEY_UNAVAILABLE, str(error))
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote the event.
            return Unsealed(DeadLetterReason.STAGE_CRASHED, type(error).__name__)

    def _entries(self, key: SealingKey, event: MappedEvent) -> Mapping[str, Sequence[Register]]:
        if not self._policies:
            return NO_ENTRIES
        found: dict[str, Sequence[Register]] = {}
        for what in event.leaves.to_seal:
            if type(what.value) is list and what.path in self._policies:
                policy = POLICIES[self._policies[what.path].policy]
                if policy.shares_origins:
                    written = policy.entries(Register(event.origin, Kind.PLAIN, what.value))
                    elements = [entry.value for entry in written]
                    found[what.path] = self._sealer.seal_elements(
                        key, event.origin, what, elements, policy.bound
                    )
        return found


def _key(keys: FetchedKeys, fragment_id: str) -> SealingKey:
    if isinstance(keys, KeyProviderError):
        raise keys
    return keys[fragment_id]
