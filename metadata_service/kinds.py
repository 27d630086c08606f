"""The kinds of versioned documents. A new kind is a model, its name in `ItemKind`, and a line here."""

from __future__ import annotations

from typing import Any

from metadata_service.attributes.policies import ATTRIBUTES
from metadata_service.attributes.rules import DEFAULTS, LEVELS
from metadata_service.behaviour import ACTIVITIES, DERIVED_ATTRIBUTES
from metadata_service.definitions import SEGMENTS, VIEWS
from metadata_service.identity_rules import RULES
from metadata_service.specs.catalogue import SPECS
from metadata_service.storage.versions import VersionedDocuments
from metadata_service.triggers import TRIGGERS

KINDS: dict[str, VersionedDocuments[Any, Any]] = {
    each.kind: each
    for each in (
        LEVELS,
        DEFAULTS,
        ATTRIBUTES,
        SPECS,
        RULES,
        ACTIVITIES,
        DERIVED_ATTRIBUTES,
        VIEWS,
        SEGMENTS,
        TRIGGERS,
    )
}
"""All kinds, in the order of their publication: a spec after the attributes that protect its values. Sandboxes
and decisions of a second person follow from this table."""

DOCUMENTS = {each.kind: each for each in KINDS.values() if each not in (ATTRIBUTES, SPECS)}
"""The kinds whose routes and rights follow too."""
