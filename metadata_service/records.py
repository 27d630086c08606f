"""What the service answers with, where `model` has no type for it."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from model.attributes import AttributeMetadata
from model.specs import SpecDocument


class SpecRecord(BaseModel):
    """A spec by name: its latest version, and which version maps events now."""

    name: str
    latest_version: int
    active_version: int | None
    document: SpecDocument = Field(description="The latest version.")


class Provenance(BaseModel):
    """Who made a version, when and why."""

    snapshot_version: int
    at: datetime
    actor: str
    reason: str


class SpecVersionRecord(Provenance):
    document: SpecDocument


class AttributeVersionRecord(Provenance):
    metadata: AttributeMetadata


class ChangeRecord(Provenance):
    """One line of the change log. `subject` is the name of a spec or the path of an attribute."""

    id: int
    kind: str
    subject: str
    subject_version: int | None
    action: str


class RefusedChange(BaseModel):
    """A schema change that was not taken; `index` is its place in the request."""

    index: int
    reason: str


class SchemaAnswer(BaseModel):
    """What became of a schema PATCH. The counts are of changes, by what each did."""

    created: int
    conflicted: int
    unchanged: int
    refused: int
    problems: list[RefusedChange]
    snapshot_version: int


class SpecCheck(BaseModel):
    """A spec that would be accepted; warnings say what would still stop it from being activated."""

    valid: bool = True
    warnings: list[str]
