"""The policies of some paths, with what they inherit from attributes above them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata
from idgraph.model.snapshots import MetadataSnapshot
from metadata_service.attributes.catalogue import find_attributes, find_within, first_below
from metadata_service.attributes.rules import classification_levels, discovery_defaults

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
    """The policies of these attributes, and of those that nobody declared; `more` are other parts of the snapshot."""
    from transforms.schema.diff import AttributeTree

    snapshot = MetadataSnapshot(
        version=0,
        attributes=tuple(attributes),
        defaults=discovery_defaults(session),
        levels=classification_levels(session),
        **more,
    )
    return AttributeTree(snapshot)
