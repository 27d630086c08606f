"""What a snapshot makes of registers that are stored already: the ones that an event mapped today would write.

A function of (register, snapshot, data key). The origin stays, so which register wins stays too. Protection only
grows here: what is sealed and need not be any more stays sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache

from model.fragments import Kind, Register
from model.identifiers import Identifier
from model.sealed import SealedValue
from transforms.blind_index import BlindIndex, is_hashed
from transforms.compiled import CompiledSnapshot
from transforms.key_holder import KeyHolder
from transforms.register_sealing import RegisterSealer
from transforms.schema import ValueToSeal
from transforms.sealing import SealingKey

MOST_PATHS = 16_384


class Restatement(StrEnum):
    """What is to be done with a stored register."""

    SEAL = "seal"
    CHECK_TOKEN = "check_token"  # noqa: S105 - the name of a step
    DROP_TOKEN = "drop_token"  # noqa: S105


class StoredValues(KeyHolder):
    """Judges and restates registers under one snapshot. One per thread."""

    def __init__(self, snapshot: CompiledSnapshot, blind_index: BlindIndex) -> None:
        self._attributes = snapshot.attributes
        self._names = snapshot.protected_names
        self._event_id_places = {spec.name: spec.id for spec in snapshot.snapshot.specs}
        self._blind_index = blind_index
        self._sealer = RegisterSealer(snapshot.snapshot, blind_index)
        # Most fragments have the same paths.
        self._shows_in_a_key = lru_cache(MOST_PATHS)(snapshot.attributes.shows_in_a_key)

    def outdated(self, registers: Mapping[str, Register]) -> dict[str, Restatement]:
        """The registers that may not be as they would be written today, by path. Whether a token is right only
        `restated` tells: it depends on the value, and on the type that is declared today."""
        found = ((path, self._judge(path, register)) for path, register in registers.items())
        return {path: what for path, what in found if what is not None}

    def _judge(self, path: str, register: Register) -> Restatement | None:
        if register.kind is Kind.PLAIN:
            policy = self._attributes.policy_of_value(path, register.value)
            return Restatement.SEAL if policy.is_protected else None
        if register.kind is Kind.DELETED:
            return None
        # Of a sealed value the path alone tells: no reading it to see what it looks like.
        policy = self._attributes.policy(path)
        if policy.is_searchable:
            return Restatement.CHECK_TOKEN
        has_token = SealedValue.parse(register.value).token is not None
        return Restatement.DROP_TOKEN if has_token and policy.is_protected else None

    def restated(self, key: SealingKey, path: str, register: Register, what: Restatement) -> Register:
        """The register as it is written today; the same one where it stays as it is.

        Raises SealError for a sealed value that cannot be opened, KeyProviderError for an unusable key.
        """
        if what is Restatement.SEAL:
            policy = self._attributes.policy_of_value(path, register.value)
            return self._sealer.seal(
                key, register.origin, ValueToSeal(path, register.value, policy.is_searchable)
            )
        present = SealedValue.parse(register.value)
        token = self._token(key, path, register, present) if what is Restatement.CHECK_TOKEN else None
        return (
            register
            if token == present.token
            else register._replace(value=str(present._replace(token=token)))
        )

    def _token(self, key: SealingKey, path: str, register: Register, present: SealedValue) -> str | None:
        stamp = register.stamp
        value = key.open(present.ciphertext, path, stamp.source, stamp.event_id)
        is_searchable = self._attributes.policy_of_value(path, value).is_searchable
        return self._sealer.token(path, value) if is_searchable else None

    def readable_names(self, identifiers: Iterable[str], registers: Mapping[str, Register]) -> set[str]:
        """What of these identifiers and event ids today's events would carry as a keyed hash: types, with
        `event` for ids of events; and `path` if a key of a path looks sensitive, for which an event that
        nobody declared it for is set aside. No value is opened or changed: a name cannot be sealed in place."""
        parsed = [Identifier.parse(text) for text in identifiers]
        found = {each.type for each in parsed if not is_hashed(each.value) and self._names.protects(each)}
        if any(self._shows_event_id(register) for register in registers.values()):
            found.add("event")
        if any(self._shows_in_a_key(path) for path in registers):
            found.add("path")
        return found

    def shown_name(self, fragment_id: str) -> str:
        """A fragment's id as it may be told: hashed where policy protects it by now."""
        name = Identifier.parse(fragment_id)
        return str(self._blind_index.identifier(name) if self._names.protects(name) else name)

    def _shows_event_id(self, register: Register) -> bool:
        event_id = register.stamp.event_id
        place = self._event_id_places.get(register.spec.name)
        return not is_hashed(event_id) and self._names.protects_event_id(place, event_id)
