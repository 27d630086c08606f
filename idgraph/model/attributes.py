"""Attribute metadata: findings and decisions about one leaf of the unified schema."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from idgraph.model.classification import Classification, EncryptionLevel, Proposal
from idgraph.model.documents import FrozenDocument
from idgraph.model.durations import TimeForm

__all__ = [
    "AttributeDefinition",
    "AttributeMetadata",
    "AttributeStatus",
    "Catalogue",
    "Classification",
    "DataType",
    "EncryptionLevel",
    "KnownAttribute",
    "Reconciliation",
    "ReconciliationPolicy",
    "TypeConflict",
]


class DataType(StrEnum):
    """Leaf types of JSON; `number` includes integers. An array is one value."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"


class ReconciliationPolicy(StrEnum):
    """Policies that reconcile the values of one attribute."""

    LATEST = "latest"
    FIRST = "first"
    MAX = "max"
    MIN = "min"
    UNION = "union"
    APPEND = "append"
    SUM = "sum"
    COUNT = "count"
    SOURCE_PRIORITY = "source_priority"


class Reconciliation(NamedTuple):
    """A policy, and for `source_priority` the sources, the most trusted first."""

    policy: ReconciliationPolicy
    sources: tuple[str, ...] = ()


class AttributeStatus(StrEnum):
    """`discovered`: from events, undecided. `active`: declared or confirmed. `retired`: stored values stay, new ones
    are not indexed."""

    DISCOVERED = "discovered"
    ACTIVE = "active"
    RETIRED = "retired"


Path = Annotated[str, Field(min_length=1, max_length=1024, description="Dotted path of the leaf.")]


Tag = Annotated[str, Field(pattern=r"^[^\s,]([^\n,]{0,48}[^\s,])?$")]


class AttributeDefinition(FrozenDocument):
    """An admin's definition of an attribute. A reader needs the clearance `authorization_level` (0 to 100)."""

    path: Path
    name: str = Field(
        default="", max_length=200, description="Human name; the last key of the path if empty."
    )
    description: str = Field(default="", max_length=4000)
    owner: str = Field(default="", max_length=200, description="The responsible person or team.")
    tags: tuple[Tag, ...] = Field(default=(), max_length=20, description="Words to find it by.")
    data_type: DataType
    source: str | None = Field(default=None, description="The first or owning source.")
    classification: Classification = Classification.INTERNAL
    encryption: EncryptionLevel = EncryptionLevel.NONE
    identifiable: bool = Field(default=False, description="Whether the value can single out a person.")
    authorization_level: int = Field(default=0, ge=0, le=100)
    policy: ReconciliationPolicy = ReconciliationPolicy.LATEST
    sources: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="For policy source_priority: the sources, the most trusted first. Others come after them.",
    )
    indexable: bool = True
    time: TimeForm | None = Field(
        default=None,
        exclude_if=lambda form: form is None,
        description="The value is a time: in epoch `milliseconds`, as `rfc3339` in UTC, or a `date`, such as 2026-11-29.",
    )
    status: AttributeStatus = AttributeStatus.ACTIVE

    @property
    def is_protected(self) -> bool:
        return self.encryption is not EncryptionLevel.NONE


class TypeConflict(FrozenDocument):
    """A type in an event other than the declared one; `object` if events have attributes below the path. Never an
    error."""

    data_type: DataType | Literal["object"]
    source: str
    first_event: str = Field(description="Position of the first event that had it.")
    first_seen: datetime


class AttributeMetadata(AttributeDefinition):
    """A stored attribute definition: with its version, dates and findings in events."""

    version: int = Field(ge=1)
    created: datetime = Field(description="Date created.")
    first_event: str | None = Field(default=None, description="Position of the event that revealed it.")
    conflicts: tuple[TypeConflict, ...] = ()
    proposal: Proposal | None = Field(default=None, description="A detector's finding in events.")
    sealed_for_review: bool = Field(
        default=False, description="Sealed because of the proposal alone, until an admin decides."
    )

    def accepts(self, seen: DataType | Literal["object"]) -> bool:
        """Whether this type is expected, or already recorded as a conflict."""
        if seen is self.data_type or (seen is DataType.INTEGER and self.data_type is DataType.NUMBER):
            return True
        return any(conflict.data_type == seen for conflict in self.conflicts)

    @property
    def shown_type(self) -> DataType:
        """The type of the value that the policy shows: a count is an integer; `array` where events had several types."""
        shown = DataType.ARRAY if self.conflicts else self.data_type
        return DataType.INTEGER if self.policy is ReconciliationPolicy.COUNT else shown

    @property
    def column_type(self) -> DataType:
        """The type of the attribute's column in tables: as declared; of a discovered one the wider of integer and number, if
        events had both, else the first. Never by what is stored now."""
        if self.policy is ReconciliationPolicy.COUNT:
            return DataType.INTEGER
        if self.policy in (ReconciliationPolicy.UNION, ReconciliationPolicy.APPEND):
            return DataType.ARRAY
        is_open = self.status is AttributeStatus.DISCOVERED and self.data_type is DataType.INTEGER
        if is_open and any(each.data_type is DataType.NUMBER for each in self.conflicts):
            return DataType.NUMBER
        return self.data_type


class KnownAttribute(FrozenDocument):
    """One attribute as searches and tables need it."""

    path: str
    shown_type: DataType
    column_type: DataType
    source: str | None = None

    @classmethod
    def of(cls, attribute: AttributeMetadata) -> KnownAttribute:
        """The part of an attribute's metadata."""
        return cls(
            path=attribute.path,
            shown_type=attribute.shown_type,
            column_type=attribute.column_type,
            source=attribute.source,
        )


class Catalogue(FrozenDocument):
    """All known attributes, also those that follow the discovery defaults and so are not in the snapshot; by path."""

    attributes: tuple[KnownAttribute, ...] = ()

    @classmethod
    def of(cls, attributes: Iterable[AttributeMetadata]) -> Catalogue:
        """A catalogue of these attributes alone."""
        return cls(attributes=tuple(map(KnownAttribute.of, attributes)))

    @cached_property
    def shown_types(self) -> dict[str, DataType]:
        """By path the types of the values that profiles show."""
        return {each.path: each.shown_type for each in self.attributes}

    @cached_property
    def column_types(self) -> dict[str, DataType]:
        """By path the types of columns in tables."""
        return {each.path: each.column_type for each in self.attributes}
