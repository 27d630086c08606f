"""The kinds of versioned documents. A new kind is a model, and a line here."""

from __future__ import annotations

from typing import Any

from metadata_service.attributes.rules import DEFAULTS, LEVELS
from metadata_service.definitions import SEGMENTS, VIEWS
from metadata_service.identity_rules import RULES
from metadata_service.storage.versions import VersionedDocuments

DOCUMENTS: dict[str, VersionedDocuments[Any, Any]] = {
    each.kind: each for each in (LEVELS, DEFAULTS, RULES, VIEWS, SEGMENTS)
}
"""By kind; their routes and rights, their part in sandboxes and decisions of second persons follow from this table."""
