"""Registers, and what one event asks of one fragment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from idgraph.model.attributes import Reconciliation
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp


class Kind(IntEnum):
    """What a register holds. The order is part of the tie-break, so it must not change."""

    DELETED = 0
    PLAIN = 1
    SEALED = 2


class Origin(NamedTuple):
    """The event that said something, and the spec version that mapped it. Ordered: by stamp, then spec."""

    stamp: Stamp
    spec: SpecRef


class Register(NamedTuple):
    """One leaf's value with the stamp that decides it and the spec version that made it.

    `value` is None when deleted, a JSON value when plain, base64 text of the sealed bytes when sealed.
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
"""The policies of a snapshot in which every attribute has `latest`."""


class FragmentChange(NamedTuple):
    """All that one event asks of one fragment: its mutations by path, each with `origin` for origin.

    `scope` is None for a delta; for a snapshot event it is the path below which values that the same
    source set earlier, and that are not among `mutations`, are deleted.

    `policies` are those of the snapshot that mapped the event, of paths that have another than `latest`.
    `entries` are what a policy keeps of a mutation that does not report it: the elements of a sealed array.
    """

    fragment_id: str
    origin: Origin
    mutations: Mapping[str, Register]
    identifiers: tuple[Identifier, ...]
    scope: str | None = None
    policies: Mapping[str, Reconciliation] = LATEST_ONLY
    entries: Mapping[str, Sequence[Register]] = NO_ENTRIES
