"""What a snapshot makes of registers that are stored already: the ones that an event mapped today would write.

A function of (register, snapshot, data key). The origin stays, so which register wins stays too. Protection only
grows here: what is sealed and need not be any more stays sealed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from idgraph.model.errors import SealError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.sealed import SealedValue
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.not_picklable import NotPicklable
from transforms.privacy.register_sealing import RegisterSealer
from transforms.privacy.sealing import SealingKey
from transforms.schema.leaves import ValueToSeal
from transforms.spec.snapshot import CompiledSnapshot

MOST_PATHS = 16_384


class Restatement(StrEnum):
    """What is to be done with a stored register."""

    SEAL = "seal"
    CHECK_TOKEN = "check_token"  # noqa: S105 - the name of a step
    DROP_TOKEN = "drop_token"  # noqa: S105


class OutdatedValue(NamedTuple):
    """A stored register, the path it stands at, and what is to be done with it."""

    path: str
    register: Register
    what: Restatement


class StoredValues(NotPicklable):
    """Judges and restates registers under one snapshot. One per thread."""

    def __init__(self, snapshot: CompiledSnapshot, blind_index: BlindIndex) -> None:
        self._attributes = snapshot.attributes
        self._sealer = RegisterSealer(snapshot.attributes, blind_index)
        # Most fragments have the same paths.
        self._node = lru_cache(MOST_PATHS)(snapshot.attributes.stored_node)
        self._shows_in_a_key = lru_cache(MOST_PATHS)(snapshot.attributes.shows_in_a_key)

    def stale(self, stored: Iterable[tuple[str, Register]]) -> list[OutdatedValue]:
        """The registers that may not be as they would be written today. Whether a token is right only `restated`
        reports: it depends on the value, and on the type that is declared today."""
        found = ((path, register, self._judge(path, register)) for path, register in stored)
        return [OutdatedValue(path, register, what) for path, register, what in found if what is not None]

    def _judge(self, path: str, register: Register) -> Restatement | None:
        if register.kind is Kind.PLAIN:
            node = self._node(path)
            if not (node.is_sealed or node.is_undecided):
                return None
            is_protected = self._attributes.policy_at(node, register.value).is_protected
            return Restatement.SEAL if is_protected else None
        if register.kind is Kind.DELETED:
            return None
        # Of a sealed value the path alone reports: no reading it to see what it looks like.
        policy = self._attributes.policy(path)
        if policy.is_searchable:
            return Restatement.CHECK_TOKEN
        has_token = SealedValue.parse(register.value).token is not None
        return Restatement.DROP_TOKEN if has_token and policy.is_protected else None

    def restated(self, key: SealingKey, stale: OutdatedValue) -> Register:
        """The register as it is written today; the same one where it stays as it is.

        Raises SealError for a sealed value that cannot be opened, KeyProviderError for an unusable key.
        """
        path, register, what = stale
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

    def renamed(
        self, keys: tuple[SealingKey | None, SealingKey | None], path: str, register: Register, origin: Origin
    ) -> Register:
        """A register as it is written today by an event of this origin, in a fragment of another id or origin than
        it has; `keys` are those of the fragment that it is in, and of the one that it goes to.

        Raises SealError for a sealed value that cannot be opened, KeyProviderError for an unusable key.
        """
        before, after = keys
        if register.kind is Kind.DELETED:
            return Register(origin, Kind.DELETED, None)
        value, token, kind = register.value, None, register.kind
        if kind is Kind.SEALED:
            sealed = SealedValue.parse(value)
            if before is None:
                raise SealError(f"the sealed value at {path!a} belongs to a data key that is gone")
            stamp = register.stamp
            value = before.open(sealed.ciphertext, path, stamp.source, stamp.event_id)
            token = sealed.token
        policy = self._attributes.policy_at(self._node(path), value)
        if kind is Kind.PLAIN and not policy.is_protected:
            return Register(origin, kind, value)
        if after is None:
            raise SealError(f"there is no data key to seal the value at {path!a} by")
        resealed = self._sealer.seal(after, origin, ValueToSeal(path, value, policy.is_searchable))
        if policy.is_protected or token is None:
            return resealed
        # Nobody protects it any more: it stays as it was sealed.
        text = str(SealedValue(SealedValue.parse(resealed.value).ciphertext, token))
        return resealed._replace(value=text)

    def shows_in_keys(self, stored: Iterable[str]) -> bool:
        """Whether a key of one of these paths looks sensitive, for which an event that nobody declared it for is
        set aside: a path cannot be sealed."""
        return any(map(self._shows_in_a_key, stored))
