"""Mapping spec documents: the events of a spec, its operations, and the meaning of its output."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from idgraph.model.documents import NAME_PATTERN, FrozenDocument
from idgraph.model.stamps import SpecRef

IDENTIFIER_TYPE_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
RESERVED_KEY = "_event"
"""Top-level key of the mapped output for `id`, `ordinal` and identifiers; it is not stored."""


class SpecType(StrEnum):
    """Kinds of operations in the chain: Jolt's, JMESPath's, or both."""

    JOLT = "jolt"
    JMESPATH = "jmespath"
    CHAIN = "chain"


class SpecStatus(StrEnum):
    """Only `active` specs map events."""

    DRAFT = "draft"
    ACTIVE = "active"
    RETIRED = "retired"


class IdentifierPlace(FrozenDocument):
    """Place of an identifier in the mapped output.

    Exactly one place of a spec is `primary`. Without a value there, the first `fallback` place with a value names the
    fragment, in the order of the list.
    """

    type: str = Field(pattern=IDENTIFIER_TYPE_PATTERN)
    path: str = Field(min_length=1, max_length=1024)
    primary: bool = False
    fallback: bool = False


class Evidence(FrozenDocument):
    """The identifiers of an event that are evidence for one person, and the strength of this evidence."""

    strength: float | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="In place of the strength that the identity rules give the source.",
    )
    links: tuple[tuple[str, str], ...] | None = Field(
        default=None,
        max_length=100,
        description="Pairs of identifier types. Absent: every pair of identifiers. Empty: none.",
    )


class SpecCase(FrozenDocument):
    """A payload, and what the operations make of it; no part of the snapshot that flows follow."""

    name: str = Field(min_length=1, max_length=100)
    payload: dict[str, Any]
    output: dict[str, Any] | None = Field(
        default=None, description="Null: the event is set aside, or maps to nothing."
    )


class SpecDefinition(FrozenDocument):
    """A mapping spec as its author writes it.

    `source` and `event_type` are exact names, or patterns with `*` for any characters. `MetadataSnapshot.spec_for`
    chooses among matching specs.

    `id`, `ordinal`, `retracts` and the identifiers' paths are attribute paths in the mapped output. Values below the
    top-level key `_event` serve only these paths and are not stored. Default for `id` and `ordinal`: the envelope's.
    """

    name: str = Field(pattern=NAME_PATTERN)
    description: str = Field(default="", max_length=4000)
    specification_type: SpecType = SpecType.CHAIN
    source: str = Field(min_length=1, max_length=200)
    event_type: str = Field(default="*", min_length=1, max_length=200)
    operations: list[Any] | dict[str, Any] = Field(description="A chain, or a single operation.")
    id: str | None = Field(default=None, min_length=1)
    ordinal: str | None = Field(default=None, min_length=1)
    identifiers: tuple[IdentifierPlace, ...] = Field(min_length=1)
    evidence: Evidence | None = Field(
        default=None, description="Absent: every pair, as strong as its source."
    )
    retracts: str | None = Field(
        default=None,
        min_length=1,
        description="Path of the id of an event of the same source that is taken back.",
    )
    mode: Literal["delta", "snapshot"] = "delta"
    scope: str = Field(
        default="",
        description="For snapshots: values below this path that the event does not send are deleted.",
    )
    priority: int = Field(default=0, ge=-1000, le=1000, description="First field of the stamp; higher wins.")
    cases: tuple[SpecCase, ...] = Field(default=(), max_length=100, description="Test cases.")
    status: SpecStatus = SpecStatus.DRAFT

    @model_validator(mode="after")
    def _one_primary(self) -> Self:
        if sum(place.primary for place in self.identifiers) != 1:
            raise ValueError("exactly one identifier must be primary")
        if any(place.primary and place.fallback for place in self.identifiers):
            raise ValueError("an identifier is primary or a fallback, not both")
        if len({case.name for case in self.cases}) < len(self.cases):
            raise ValueError("two cases have one name")
        if self.scope and self.mode == "delta":
            raise ValueError("scope belongs to mode 'snapshot'")
        return self

    def digest(self) -> str:
        """A digest of the parts of a spec that decide what it does."""
        content = self.model_dump_json(exclude={"status", "cases"}, exclude_defaults=True)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class SpecDocument(SpecDefinition):
    """One stored, immutable version of a mapping spec."""

    version: int = Field(ge=1)
    created: datetime

    @property
    def ref(self) -> SpecRef:
        return SpecRef(self.name, self.version)
