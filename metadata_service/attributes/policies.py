"""Attributes as versioned documents, and the policies of some paths, with what they inherit from attributes
above them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, AttributeStatus
from idgraph.model.classification import EncryptionLevel
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from metadata_service.attributes.catalogue import (
    PATHS_A_QUERY,
    PlannedAttribute,
    carry_out,
    find_attributes,
    find_within,
    first_below,
    plan_attribute,
    write_versions,
)
from metadata_service.attributes.rules import (
    classification_levels,
    discovery_defaults,
    knows_any,
    less_encrypted,
    weaker,
)
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import AttributeRow, AttributeVersionRow
from metadata_service.storage.versions import Differs, Held, VersionedDocuments

if TYPE_CHECKING:
    from transforms.schema.diff import AttributeTree


def attributes_around(session: Session, touched: Iterable[str]) -> dict[str, AttributeMetadata]:
    """The attributes at these paths, above them and below them, by path."""
    wanted = sorted(touched)
    around = {above for path in wanted for above in (path, *paths.ancestors(path))}
    found = {each.path: each for each in find_attributes(session, around)}
    for path in first_below(session, wanted):
        found |= {each.path: each for each in find_within(session, path)}
    return found


def policies_of(session: Session, attributes: Iterable[AttributeMetadata], **more: Any) -> AttributeTree:
    """The policies of these attributes, and of those that nobody declared; `more` are other parts of the
    snapshot."""
    from transforms.schema.diff import AttributeTree

    snapshot = MetadataSnapshot(
        version=0,
        attributes=tuple(attributes),
        defaults=discovery_defaults(session),
        levels=classification_levels(session),
        **more,
    )
    return AttributeTree(snapshot)


def opened_by_attribute(session: Session, planned: PlannedAttribute) -> list[str]:
    """The paths that an attribute's edit opens, each as `path: from to`; empty if nothing."""
    path = planned.after.path
    above = list(find_attributes(session, paths.ancestors(path)))
    below = list(find_within(session, path))
    defaults = discovery_defaults(session)
    around = [_decided(each, defaults) for each in (*above, *below)]
    before = [_decided(planned.before, defaults)] if planned.before is not None else []
    old = policies_of(session, [*around, *before])
    new = policies_of(session, [*around, planned.after])
    opened = [
        opens
        for each in sorted(each.path for each in (*around, *before))
        for opens in weaker(each, old.policy(each), new.policy(each))
    ]
    if not before and any(_decided(each, defaults).is_protected for each in above):
        # With a new path the protection of those above is at stake, before its first value.
        opened += less_encrypted(path, old.policy(path).encryption, new.policy(path).encryption)
    if not before and planned.after.authorization_level < defaults.authorization_level and knows_any(session):
        # Purged and over the cap are unknown too, and what is stored of them has the level of the defaults.
        level = planned.after.authorization_level
        opened.append(f"{path}: authorization level {defaults.authorization_level} to {level}")
    known = planned.before
    if known is not None and known.status is not AttributeStatus.DISCOVERED:
        was, becomes = known.classification, planned.after.classification
        opened += [f"{path}: {was} to {becomes}"] if becomes.sensitivity < was.sensitivity else []
    if (
        before
        and before[0].encryption is EncryptionLevel.PROTECTED
        and planned.after.encryption is EncryptionLevel.PROTECTED
        and planned.after.identifiable > before[0].identifiable
    ):
        opened.append(f"{path}: may be made an identifier, whose keyed hash tells equal values")
    return opened


def _decided(attribute: AttributeMetadata, defaults: DiscoveryDefaults) -> AttributeMetadata:
    """Without what only a detector's proposal protects: as it would have been discovered without one."""
    if not attribute.sealed_for_review:
        return attribute
    level = defaults.authorization_level
    return attribute.model_copy(update={"encryption": EncryptionLevel.NONE, "authorization_level": level})


def _planned(session: Session, definition: AttributeDefinition) -> AttributeMetadata:
    return plan_attribute(Edit(session, "", "", b""), definition, lambda _: None).after


def _opened(session: Session, after: AttributeMetadata) -> list[str]:
    before = next(find_attributes(session, [after.path]), None)
    return opened_by_attribute(session, PlannedAttribute(before, None, after))


class _Attributes(VersionedDocuments[AttributeDefinition, AttributeMetadata]):
    """People decided on those that are more than discovered. Versions and paths have tables of their own."""

    row = AttributeVersionRow

    def held(self, session: Session, name: str = "") -> Held[AttributeMetadata] | None:
        known = next(find_attributes(session, [name]), None)
        return None if known is None else Held(known.version, known)

    def all(self, session: Session) -> Iterator[AttributeMetadata]:
        known = select(AttributeRow.path).order_by(AttributeRow.path)
        return find_attributes(session, session.scalars(known))

    def contents(self, session: Session) -> Iterator[tuple[str, dict[str, Any]]]:
        found = ((each.path, self._content(each)) for each in self.all(session))
        return ((path, content) for path, content in found if content["status"] != AttributeStatus.DISCOVERED)

    def content(self, session: Session, name: str = "") -> dict[str, Any] | None:
        found = super().content(session, name)
        return found if found and found["status"] != AttributeStatus.DISCOVERED else None

    def copy(self, session: Session, edit: Edit) -> None:
        found = self.all(session)
        while some := list(islice(found, PATHS_A_QUERY)):
            write_versions(edit, some, ())

    def carry_out(self, edit: Edit, document: str, differs: Differs) -> None:
        planned = plan_attribute(edit, AttributeDefinition.model_validate_json(document), lambda _: None)
        differs(planned.before, _opened(edit.session, planned.after))
        carry_out(edit, planned)

    def _content(self, document: AttributeMetadata) -> dict[str, Any]:
        return document.model_dump(mode="json", include=set(AttributeDefinition.model_fields))

    def _of(self, name: str) -> tuple[ColumnElement[bool], ...]:
        return (AttributeVersionRow.path == name,)


ATTRIBUTES = _Attributes("attribute", AttributeDefinition, AttributeMetadata, _planned, opens=_opened)
