"""Attribute metadata: what is known and decided about one leaf of the unified schema."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from idgraph.model.classification import Classification, EncryptionLevel
from idgraph.model.proposals import Proposal

__all__ = [
    "AttributeDefinition",
    "AttributeMetadata",
    "AttributeStatus",
    "Classification",
    "DataType",
    "EncryptionLevel",
    "Reconciliation",
    "ReconciliationPolicy",
    "TypeConflict",
]


class DataType(StrEnum):
    """JSON's leaf types; `number` holds integers too. Arrays are one value."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"


class ReconciliationPolicy(StrEnum):
    """How two values of one attribute are reconciled."""

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
    """How the values of one attribute are reconciled: by a policy, and for `source_priority` by sources, the most
    trusted first."""

    policy: ReconciliationPolicy
    sources: tuple[str, ...] = ()


class AttributeStatus(StrEnum):
    """`discovered` came from events and awaits an admin; `active` was declared or confirmed; `retired`
    keeps its stored values but new ones are no longer indexed."""

    DISCOVERED = "discovered"
    ACTIVE = "active"
    RETIRED = "retired"


Path = Annotated[str, Field(min_length=1, max_length=1024, description="Dotted path of the leaf.")]


class AttributeDefinition(BaseModel):
    """What an admin says of an attribute. `authorization_level` is the clearance (0 to 100) a reader needs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    name: str = Field(
        default="", max_length=200, description="Human name; the last key of the path if empty."
    )
    description: str = Field(default="", max_length=4000)
    data_type: DataType
    source: str | None = Field(default=None, description="The source that first sent it or that owns it.")
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
    status: AttributeStatus = AttributeStatus.ACTIVE

    @property
    def is_protected(self) -> bool:
        return self.encryption is not EncryptionLevel.NONE


class TypeConflict(BaseModel):
    """A type other than the declared one, seen in an event: `object` where events have attributes below the path.
    Recorded, never an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_type: DataType | Literal["object"]
    source: str
    first_event: str = Field(description="Position of the first event that had it.")
    first_seen: datetime


class AttributeMetadata(AttributeDefinition):
    """An attribute definition as stored: with its version, dates and what events showed."""

    version: int = Field(ge=1)
    created: datetime = Field(description="Date created.")
    first_event: str | None = Field(default=None, description="Position of the event that revealed it.")
    conflicts: tuple[TypeConflict, ...] = ()
    proposal: Proposal | None = Field(
        default=None, description="What a detector found in events, if one did."
    )
    sealed_for_review: bool = Field(
        default=False, description="Sealed because of the proposal alone, until an admin decides."
    )

    def accepts(self, seen: DataType | Literal["object"]) -> bool:
        """Whether a value of this type is expected or its conflict already recorded."""
        if seen is self.data_type or (seen is DataType.INTEGER and self.data_type is DataType.NUMBER):
            return True
        return any(conflict.data_type == seen for conflict in self.conflicts)

    @property
    def shown_type(self) -> DataType:
        """The type of what its policy shows: of texts too a count is an integer."""
        return DataType.INTEGER if self.policy is ReconciliationPolicy.COUNT else self.data_type
