"""Answers of the metadata service that are no documents of their own, as it gives and its client reads them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from idgraph.model.attributes import AttributeMetadata
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.specs import SpecDocument

Document = TypeVar("Document", bound=BaseModel)


class SpecRecord(BaseModel):
    """A spec by name: its latest version, and which version maps events now."""

    name: str
    latest_version: int
    active_version: int | None
    document: SpecDocument = Field(description="The latest version.")


class SpecUseRecord(BaseModel):
    """The use of a spec's version in force by flows, for one source. Events are counted by a sample, and again when a
    micro-batch is: about so many."""

    source: str
    events: int
    errors: int = Field(description="Events that were set aside.")
    since: datetime
    last_used: datetime
    unread: list[str] = Field(
        description="Fields of the input that the spec does not read, as JSON pointers."
    )


class SpecHealthRecord(BaseModel):
    """An active spec, and its use by source."""

    name: str
    version: int
    source: str
    event_type: str
    uses: list[SpecUseRecord]


class UnmappedRecord(BaseModel):
    """Events of a source that no active spec maps: about so many, until its last one."""

    source: str
    events: int
    last_seen: datetime


class SpecHealthList(BaseModel):
    """A page of specs by name; `unmapped` is of all."""

    items: list[SpecHealthRecord]
    next: str | None
    unmapped: list[UnmappedRecord]


class ProvenanceRecord(BaseModel):
    """The author of a version, the time and the reason."""

    snapshot_version: int
    at: datetime
    actor: str
    reason: str


class ModelTensor(BaseModel):
    """An input or output of a model; `columns` is null where the model leaves their number open."""

    name: str
    type: str = Field(description="As ONNX names it: `float`, `int64`, `string`.")
    columns: int | None


class ModelInterface(BaseModel):
    """Inputs, outputs and size of a model."""

    bytes: int
    nodes: int
    inputs: list[ModelTensor]
    outputs: list[ModelTensor]


class ModelRecord(ProvenanceRecord, ModelInterface):
    """A model in the ONNX format, named by the SHA-256 digest of its bytes."""

    digest: str
    name: str = Field(description="Empty: nobody named it.")
    used_by: list[str] = Field(description="The derived attributes in force that name it.")


class RulesRecord(BaseModel):
    """The identity rules in force."""

    version: int = Field(description="0: the default rules, which nobody changed.")
    document: IdentityRules


class VersionRecord(ProvenanceRecord, Generic[Document]):
    """A version of a document."""

    version: int
    document: Document


class AttributeVersionRecord(ProvenanceRecord):
    metadata: AttributeMetadata


class ChangeRecord(ProvenanceRecord):
    """One line of the change log. `subject` is the name of a spec or the path of an attribute."""

    id: int
    kind: str
    subject: str
    subject_version: int | None
    action: str


class VerificationRecord(BaseModel):
    """A check of the whole history."""

    versions: int = Field(description="Number of whole versions, from the first.")
    broken_version: int | None = Field(
        description="The first that was altered, or before which one was removed."
    )
    head: str = Field(
        description="The hash of the last whole version: note it, and compare it with the next."
    )


class PolicyChangeRecord(BaseModel):
    """An edit that weakens protection: who asked for it, and what a second person decided."""

    id: int
    kind: str
    subject: str
    status: Literal["pending", "approved", "refused"]
    weakens: list[str] = Field(description="The attributes that it opens, each as `path: from to`.")
    document: dict[str, Any] = Field(description="The document that is saved when it is approved.")
    requested: ProvenanceRecord
    decided: ProvenanceRecord | None = None


class RefusedChangeRecord(BaseModel):
    """A schema change that was not taken; `index` is its place in the request."""

    index: int
    reason: str


class SchemaRecord(BaseModel):
    """The result of a schema PATCH. The counts are of changes, by what each did."""

    created: int
    conflicted: int
    proposed: int
    unchanged: int
    waiting: int = Field(default=0, description="New attributes over a cap, which are not in the catalogue.")
    refused: int
    problems: list[RefusedChangeRecord]
    snapshot_version: int


class SpecCaseRecord(BaseModel):
    """Whether a case of a spec passes; `problem` says in what its result differs."""

    name: str
    problem: str | None


class CheckRecord(BaseModel):
    """A document that would be accepted, with warnings."""

    valid: bool = True
    warnings: list[str]


class ProtectedPlaceList(BaseModel):
    """The places of a spec's input whose values policy protects, each as its keys; null for any key or element."""

    places: list[list[str | None]]
    unnamed: list[list[str | None]] = Field(
        [], description="Those of them that make no identifier: policy seals even which values are equal."
    )


class SpecCheckRecord(CheckRecord):
    """A spec that would be accepted; warnings say what would still stop it from being activated."""

    cases: list[SpecCaseRecord] = []


class DiscoveryCount(BaseModel):
    """The attributes that one source, or those beyond the first thousand (`*`), added on one day in UTC."""

    day: str
    source: str
    created: int
    waiting: int = Field(description="Reports over a cap: these attributes are not in the catalogue.")


class DiscoveryCounts(BaseModel):
    """The number of attributes in the catalogue, and those of the newest days, the newest first."""

    attributes: int
    most_attributes: int
    most_new_per_source_and_day: int
    days: list[DiscoveryCount]


class PurgeRecord(BaseModel):
    """The attributes that were purged, or would be. Stored values stay, and an event that has such a path discovers
    it again."""

    purged: int
    kept: int = Field(description="That match, and are protected by more than a detector, or were described.")
    paths: list[str] = Field(description="The first hundred of them.")
    is_all: bool = Field(description="False where more than 20,000 match: purge again.")
