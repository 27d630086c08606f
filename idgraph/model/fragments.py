"""Registers, and the change of one event to one fragment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from idgraph.model.attributes import Reconciliation
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp


class Kind(IntEnum):
    """Kind of a register's value. The order is part of the tie-break, so it must not change."""

    DELETED = 0
    PLAIN = 1
    SEALED = 2


class Origin(NamedTuple):
    """The event of a value, and the spec version that mapped it. Ordered by stamp, then spec."""

    stamp: Stamp
    spec: SpecRef


class Register(NamedTuple):
    """One leaf's value with the stamp that decides it and the spec version that made it.

    `value` is None if deleted, a JSON value if plain, base64 text of the sealed bytes if sealed.
    """

    origin: Origin
    kind: Kind
    value: Any

    @property
    def stamp(self) -> Stamp:
        return self.origin.stamp

    @property
    def spec(self) -> SpecRef:
        return self.origin.spec


NO_ENTRIES: Mapping[str, Sequence[Register]] = MappingProxyType({})
LATEST_ONLY: Mapping[str, Reconciliation] = MappingProxyType({})
"""Policies of a snapshot in which every attribute has `latest`."""


class FragmentChange(NamedTuple):
    """The change of one event to one fragment: its mutations by path, each with `origin`.

    `scope` is None for a delta. For a snapshot event it is a path: earlier values of the same source below it that are
    not among `mutations` are deleted.

    `policies` are those of the mapping snapshot, for paths with another policy than `latest`. `entries` are kept values
    that a mutation does not contain: the elements of a sealed array. `evidence` is what the spec says of the event's
    identifiers. `retracts` is the id of the event that it takes back, empty for none; None where its spec cannot say.
    """

    fragment_id: str
    origin: Origin
    mutations: Mapping[str, Register]
    identifiers: tuple[Identifier, ...]
    scope: str | None = None
    policies: Mapping[str, Reconciliation] = LATEST_ONLY
    entries: Mapping[str, Sequence[Register]] = NO_ENTRIES
    evidence: str = ""
    retracts: str | None = None
