"""A value to a sealed register: the same for an event that is mapped and for a value that is stored already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from idgraph.model.attributes import DataType, ReconciliationPolicy
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.sealed import SealedValue
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.not_picklable import NotPicklable
from transforms.privacy.sealing import SealingKey
from transforms.schema.data_types import DATA_TYPES
from transforms.schema.leaves import ValueToSeal
from transforms.schema.policy_tree import PolicyTree

# What a NamedTuple's own constructor does, without its call; and a look-up in an enum is dear.
_new: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__
_SEALED = Kind.SEALED


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
        _, _, source, event_id = origin[0]
        text = key.seal(value, path, source, event_id)
        if is_searchable:
            text = str(SealedValue(text, self.token(path, value)))
        return _new(Register, (origin, _SEALED, text))

    def seal_elements(
        self, key: SealingKey, origin: Origin, what: ValueToSeal, elements: Sequence[Any], most: int
    ) -> list[Register]:
        """The registers of an array's elements, as `seal` gives them. Of more than `most` those alone that a set of so
        many may keep: of one origin the last by their bytes, one of each token. Raises as `seal` does."""
        path, _, is_searchable = what
        if len(elements) <= most:
            return [self.seal(key, origin, what._replace(value=each)) for each in elements]
        _, _, source, event_id = origin[0]
        # Which are the last is only known once all are sealed. The tokens behind the texts do not change it: two texts
        # differ in their synthetic IVs. So tokens, which cost as much again, are made of those that stay.
        texts = [key.seal(each, path, source, event_id) for each in elements]
        kept: dict[str, Register] = {}
        for number in sorted(range(len(texts)), key=texts.__getitem__, reverse=True):
            sealed = SealedValue(texts[number], self.token(path, elements[number]) if is_searchable else None)
            kept.setdefault(sealed.token or sealed.ciphertext, _new(Register, (origin, _SEALED, str(sealed))))
            if len(kept) == most:
                break
        return list(kept.values())

    def seal_latest(
        self,
        key: SealingKey,
        events: Sequence[tuple[Origin, Sequence[ValueToSeal]]],
        present: Mapping[str, Register],
    ) -> list[dict[str, Register]]:
        """The registers of each of several events of one fragment, without those that another of them, or what is
        `present` of the fragment, replaces: of several values at a path whose policy is `latest` only the later
        ones are ever sealed. All of them must be joined then. Raises as `seal` does."""
        seal = self.seal
        if len(events) == 1 and not present:
            ((origin, values),) = events
            return [{what[0]: seal(key, origin, what) for what in values}]
        latest: dict[str, Origin] = {}
        for origin, values in events:
            for path, _, _ in values:
                known = latest.get(path)
                if known is None:
                    known = present[path][0] if path in present else origin
                    latest[path] = known
                if known < origin:
                    latest[path] = origin
        # Of one origin both are sealed: their bytes decide.
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
