"""Registers, and what one event asks of one fragment."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from model.identifiers import Identifier
from model.stamps import SpecRef, Stamp


class Kind(IntEnum):
    """What a register holds. The order is part of the tie-break, so it must not change."""

    DELETED = 0
    PLAIN = 1
    SEALED = 2


class Register(NamedTuple):
    """One leaf's value with the stamp that decides it and the spec version that made it.

    `value` is None when deleted, a JSON value when plain, base64 text of the sealed bytes when sealed.
    """

    stamp: Stamp
    spec: SpecRef
    kind: Kind
    value: Any


class Mutation(NamedTuple):
    """What one event asks of one leaf; the stamp is the event's, on its `FragmentChange`.

    `kind` and `value` as in `Register`.
    """

    path: str
    kind: Kind
    value: Any


class FragmentChange(NamedTuple):
    """All that one event asks of one fragment. A path stands at most once in `mutations`.

    `scope` is None for a delta; for a snapshot event it is the path below which values that the same
    source set earlier, and that are not among `mutations`, are deleted.
    """

    fragment_id: str
    stamp: Stamp
    spec: SpecRef
    mutations: Sequence[Mutation | tuple[str, Kind, Any]]
    identifiers: tuple[Identifier, ...]
    scope: str | None = None
