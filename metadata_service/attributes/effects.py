"""The effects of an edit of an attribute, before anybody saves it: on stored values, callers, and specs and views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeDefinition, AttributeMetadata
from idgraph.model.callers import Caller
from metadata_service.attributes.catalogue import PlannedAttribute, find_attributes, find_within
from metadata_service.attributes.lineage import LineageRecord, lineage
from metadata_service.attributes.policies import opened_by_attribute, policies_of
from metadata_service.definitions import SEGMENTS

REENCRYPT = "re-encrypt"


class FieldChange(BaseModel):
    """A field of the definition that the edit changes."""

    name: str
    before: Any
    after: Any


class AttributeEffect(BaseModel):
    """The effects of saving a definition. Paths are those whose policy in force changes, inherited policies
    included."""

    changes: list[FieldChange]
    weakens: list[str] = Field(
        description="The attributes that it opens; if there are any, it waits for a second person."
    )
    sealed: list[str] = Field(description="Paths whose stored values the job `re-encrypt` seals.")
    opened: list[str] = Field(
        description="Paths whose new values are stored readable. Values that were sealed stay sealed, and search does not find "
        "them, until an event writes them again."
    )
    reindexed: list[str] = Field(
        description="Paths that profiles in the index show otherwise only after the job `reindex`, or when an event writes them."
    )
    decides_anew: bool = Field(description="Whether values are reconciled otherwise, from the next event on.")
    job: str | None = Field(description="The job that each flow starts by itself.")
    gains: list[str] = Field(description="Callers of the profile service who see it then.")
    loses: list[str] = Field(description="Callers of the profile service to whom it does not exist then.")
    masked: list[str] = Field(description="Callers who see a masked value then, since they may not reveal.")
    lineage: LineageRecord

    @property
    def has_consequences(self) -> bool:
        """Whether it changes more than words."""
        return bool(
            self.weakens
            or self.sealed
            or self.opened
            or self.reindexed
            or self.gains
            or self.loses
            or self.decides_anew
        )


def effect_of(session: Session, planned: PlannedAttribute, callers: Iterable[Caller]) -> AttributeEffect:
    """The effects of an edit that `plan_attribute` lets pass. Stores nothing."""
    before, _, after = planned
    path = after.path
    around = [*find_attributes(session, paths.ancestors(path)), *find_within(session, path)]
    segments = tuple(SEGMENTS.active(session))

    old = policies_of(session, [*around, *([before] if before is not None else [])], segments=segments)
    new = policies_of(session, [*around, after], segments=segments)
    named = sorted({path, *(each.path for each in around)})
    places = [(each, old.policy(each), new.policy(each)) for each in named]
    sealed = [each for each, was, is_ in places if is_.encryption.strictness > was.encryption.strictness]
    # A token is added to sealed values that can be searched from now on.
    sealed += [
        each for each, was, is_ in places if is_.is_searchable and was.is_protected and not was.is_searchable
    ]
    was, becomes = old.policy(path), new.policy(path)
    found = lineage(session, path)
    usable = {each.name for each in new.index_rules.segments}
    lost = {each.name for each in old.index_rules.segments} - usable
    for reader in found.readers:
        reader.loses = reader.kind == "segment" and reader.name in lost
    everybody = list(callers)
    sees = [
        (each.name, *(each.clearance >= level.authorization_level for level in (was, becomes)))
        for each in everybody
    ]
    hides = becomes.is_protected and not was.is_protected
    changes = changes_of(before, after)
    return AttributeEffect(
        changes=changes,
        weakens=opened_by_attribute(session, planned),
        sealed=sorted(sealed),
        opened=[each for each, was, is_ in places if was.is_protected and not is_.is_protected],
        reindexed=[
            each
            for each, was, is_ in places
            if not is_.is_protected and is_.indexable != (was.indexable and not was.is_protected)
        ],
        decides_anew=before is not None and any(each.name in ("policy", "sources") for each in changes),
        job=REENCRYPT if sealed else None,
        gains=[name for name, saw, will in sees if will and not saw],
        loses=[name for name, saw, will in sees if saw and not will],
        masked=[
            each.name
            for each in everybody
            if hides and not each.may_reveal and each.clearance >= becomes.authorization_level
        ],
        lineage=found,
    )


def changes_of(before: AttributeMetadata | None, after: AttributeMetadata) -> list[FieldChange]:
    """The decisions in which two versions differ."""
    fields = set(AttributeDefinition.model_fields)
    old = {} if before is None else before.model_dump(mode="json", include=fields)
    new = after.model_dump(mode="json", include=fields)
    return [
        FieldChange(name=name, before=old.get(name), after=new.get(name))
        for name in AttributeDefinition.model_fields
        if old.get(name) != new.get(name)
    ]
