"""Stored registers under another snapshot: the ones that an event mapped today would write.

A function of (register, snapshot, data key). The origin stays, so which register wins stays too. Protection only
grows here: what is sealed and need not be any more stays sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from idgraph.model.attributes import DataType, ReconciliationPolicy
from idgraph.model.classification import SealedValue
from idgraph.model.errors import SealError
from idgraph.model.fragments import Kind, Origin, Register
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.keys import NotPicklable
from transforms.privacy.sealing import SealingKey
from transforms.schema.attribute_nodes import AttributePolicy, ValueToSeal
from transforms.schema.data_types import DATA_TYPES
from transforms.schema.policy_tree import PolicyTree
from transforms.spec.mapping import CompiledSnapshot

# The constructor of a NamedTuple, without its call; and a look-up in an enum is dear.
_new: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__
_SEALED = Kind.SEALED
_text = itemgetter(2)


class RegisterSealer(NotPicklable):
    """Seals values under one snapshot: a pure function of data key, origin and value, so that an event and its
    value in the store give the same bytes. Safe for several threads."""

    def __init__(self, attributes: PolicyTree, blind_index: BlindIndex) -> None:
        self._declared_types = attributes.declared_types
        self._blind_index = blind_index
        # Any of the values there may be the one that counts.
        self._all_count = attributes.policies

    def seal(self, key: SealingKey, origin: Origin, what: ValueToSeal) -> Register:
        """The register that an event of this origin writes. Raises SealError, and KeyProviderError for a data
        key that cannot be unwrapped."""
        path, value, is_searchable = what
        token = self.token(path, value) if is_searchable else None
        return _new(Register, (origin, _SEALED, key.seal(value, path, origin[0], token)))

    def seal_elements(
        self, key: SealingKey, origin: Origin, what: ValueToSeal, elements: Sequence[Any], most: int
    ) -> list[Register]:
        """The registers of an array's elements, as `seal` gives them. If there are more than `most`, only those that
        a set of so many may keep: the last by their bytes, one per token. Raises as `seal` does."""
        sealed = [self.seal(key, origin, what._replace(value=each)) for each in elements]
        if len(sealed) <= most:
            return sealed
        kept: dict[str, Register] = {}
        for register in sorted(sealed, key=_text, reverse=True):
            text = SealedValue.parse(register.value)
            kept.setdefault(text.token or text.ciphertext, register)
            if len(kept) == most:
                break
        return list(kept.values())

    def seal_latest(
        self,
        key: SealingKey,
        events: Sequence[tuple[Origin, Sequence[ValueToSeal]]],
    ) -> list[dict[str, Register]]:
        """The registers of each of several events of one fragment. If a path's policy is `latest`, only its latest
        values are sealed, so all events must be joined. Raises as `seal` does."""
        seal = self.seal
        if len(events) == 1:
            ((origin, values),) = events
            return [{what[0]: seal(key, origin, what) for what in values}]
        latest: dict[str, Origin] = {}
        for origin, values in events:
            for path, _, _ in values:
                known = latest.get(path)
                if known is None or known < origin:
                    latest[path] = origin
        # Two values of one origin are both sealed: their bytes decide.
        all_count = self._all_count
        return [
            {
                what[0]: seal(key, origin, what)
                for what in values
                if latest[what[0]] == origin or what[0] in all_count
            }
            for origin, values in events
        ]

    def token(self, path: str, value: object) -> str | None:
        """The blind-index token of a searchable value. An array has none but where it may be the element of a set:
        equal elements are reported by their tokens."""
        kind = type(value)
        if kind is list:
            reconciliation = self._all_count.get(path)
            if reconciliation is None or reconciliation.policy is not ReconciliationPolicy.UNION:
                return None
        data_type = self._declared_types.get(path) or DATA_TYPES.get(kind, DataType.ARRAY)
        return self._blind_index.token(path, value, data_type)


MOST_PATHS = 16_384


class Resealing(StrEnum):
    """The action for a stored register."""

    SEAL = "seal"
    SEAL_AGAIN = "seal_again"
    """If its token is another one than today's."""


class StaleValue(NamedTuple):
    """A stored register, the path it stands at, and what is to be done with it."""

    path: str
    register: Register
    what: Resealing


class StoredValues(NotPicklable):
    """Judges and reseals registers under one snapshot. One per thread."""

    def __init__(self, snapshot: CompiledSnapshot, blind_index: BlindIndex) -> None:
        self._attributes = snapshot.attributes
        self._sealer = RegisterSealer(snapshot.attributes, blind_index)
        # Most fragments have the same paths.
        self._node = lru_cache(MOST_PATHS)(snapshot.attributes.stored_node)
        self._shows_in_a_key = lru_cache(MOST_PATHS)(snapshot.attributes.shows_in_a_key)

    def stale(self, stored: Iterable[tuple[str, Register]]) -> list[StaleValue]:
        """The registers that may not be as they would be written today. Whether a token is right only `resealed`
        reports: it depends on the value, and on the type that is declared today."""
        found = ((path, register, self._judge(path, register)) for path, register in stored)
        return [StaleValue(path, register, what) for path, register, what in found if what is not None]

    def _judge(self, path: str, register: Register) -> Resealing | None:
        if register.kind is Kind.PLAIN:
            node = self._node(path)
            if not (node.is_sealed or node.is_undecided):
                return None
            is_protected = self._attributes.policy_at(node, register.value).is_protected
            return Resealing.SEAL if is_protected else None
        if register.kind is Kind.DELETED:
            return None
        # Only the path of a sealed value counts: nobody opens it to examine it.
        policy = self._attributes.policy(path)
        has_token = SealedValue.parse(register.value).token is not None
        is_stale = policy.is_searchable or (has_token and policy.is_protected)
        return Resealing.SEAL_AGAIN if is_stale else None

    def resealed(self, key: SealingKey, stale: StaleValue) -> Register:
        """The register as it is written today; the same one where it stays as it is.

        Raises SealError for a sealed value that cannot be opened, KeyProviderError for an unusable key.
        """
        path, register, what = stale
        if what is Resealing.SEAL:
            policy = self._attributes.policy_of_value(path, register.value)
            return self._sealer.seal(
                key, register.origin, ValueToSeal(path, register.value, policy.is_searchable)
            )
        value = key.open(register.value, path, register.stamp)
        present = SealedValue.parse(register.value).token
        token = self._token(path, value, self._attributes.policy_of_value(path, value), present)
        if token == present:
            return register
        return register._replace(value=key.seal(value, path, register.stamp, token))

    def _token(self, path: str, value: Any, policy: AttributePolicy, present: str | None) -> str | None:
        if policy.is_searchable:
            return self._sealer.token(path, value)
        # A value that nobody protects any more stays sealed as it was.
        return None if policy.is_protected else present

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
            if before is None:
                raise SealError(f"the sealed value at {path!a} belongs to a data key that is gone")
            token = SealedValue.parse(value).token
            value = before.open(value, path, register.stamp)
        policy = self._attributes.policy_at(self._node(path), value)
        if kind is Kind.PLAIN and not policy.is_protected:
            return Register(origin, kind, value)
        if after is None:
            raise SealError(f"there is no data key to seal the value at {path!a} by")
        text = after.seal(value, path, origin.stamp, self._token(path, value, policy, token))
        return Register(origin, Kind.SEALED, text)

    def shows_in_keys(self, stored: Iterable[str]) -> bool:
        """Whether a key of one of these paths looks sensitive, for which an event that nobody declared it for is
        set aside: a path cannot be sealed."""
        return any(map(self._shows_in_a_key, stored))
