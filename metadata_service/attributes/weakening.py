"""Which edits weaken protection, so that one person alone must not make them.

What counts is what holds for attributes that the catalogue knows, inherited protection included: nothing is stored
of the others. What a detector's proposal alone sealed counts as open, since no person decided on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata
from idgraph.model.classification import Classification, ClassificationLevels, EncryptionLevel
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from metadata_service.attributes.catalogue import PlannedAttribute, find_attributes, find_within, knows_any
from metadata_service.attributes.protection import classification_levels, discovery_defaults
from transforms.schema.diff import AttributeTree


def opened_by_attribute(session: Session, planned: PlannedAttribute) -> list[str]:
    """What an attribute's edit opens, each as `path: from to`; empty if nothing."""
    path = planned.after.path
    above = list(find_attributes(session, paths.ancestors(path)))
    below = list(find_within(session, path))
    around = [_decided(each) for each in (*above, *below)]
    before = [_decided(planned.before)] if planned.before is not None else []
    defaults = discovery_defaults(session)
    old, new = _tree([*around, *before], defaults), _tree([*around, planned.after], defaults)
    known = sorted(each.path for each in (*around, *before))
    found = ((each, old.policy(each).encryption, new.policy(each).encryption) for each in known)
    return [_reported(each, was, becomes) for each, was, becomes in found if _is_weaker(becomes, was)]


def opened_by_defaults(session: Session, after: DiscoveryDefaults) -> list[str]:
    """What other discovery defaults open."""
    before = discovery_defaults(session)
    opened: list[str] = []
    if _is_weaker(after.encryption, before.encryption):
        opened.append(_reported("attributes that nobody declared", before.encryption, after.encryption))
    if before.detection is DetectionMode.SEAL and after.detection is not DetectionMode.SEAL:
        opened.append(f"detection: {before.detection} to {after.detection}")
    opened += [
        f"keys made of values below {allowed}: refused to allowed"
        for allowed in after.value_keys
        if not any(paths.is_within(allowed, known) for known in before.value_keys)
    ]
    return opened if opened and knows_any(session) else []


def opened_by_levels(session: Session, after: ClassificationLevels) -> list[str]:
    """What other classification levels open."""
    before = classification_levels(session)
    found = ((each, before.policy(each).encryption, after.policy(each).encryption) for each in Classification)
    opened = [
        _reported(f"level {each}", was, becomes) for each, was, becomes in found if _is_weaker(becomes, was)
    ]
    return opened if opened and knows_any(session) else []


def _is_weaker(one: EncryptionLevel, other: EncryptionLevel) -> bool:
    return one.strictness < other.strictness


def _reported(what: str, was: EncryptionLevel, becomes: EncryptionLevel) -> str:
    return f"{what}: {was} to {becomes}"


def _decided(attribute: AttributeMetadata) -> AttributeMetadata:
    if not attribute.sealed_for_review:
        return attribute
    return attribute.model_copy(update={"encryption": EncryptionLevel.NONE})


def _tree(attributes: Iterable[AttributeMetadata], defaults: DiscoveryDefaults) -> AttributeTree:
    return AttributeTree(MetadataSnapshot(version=0, attributes=tuple(attributes), defaults=defaults))
