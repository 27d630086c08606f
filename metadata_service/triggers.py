"""Triggers: how one is checked before it is saved."""

from __future__ import annotations

from sqlalchemy.orm import Session

from idgraph.model.triggers import TriggerDefinition, TriggerDocument
from idgraph.web.refusals import RefusedRequestError
from metadata_service.definitions import SEGMENTS, VIEWS
from metadata_service.storage.versions import VersionedDocuments


def _trigger(session: Session, definition: TriggerDefinition) -> TriggerDocument:
    if definition.status == "active":
        _require(session, SEGMENTS, definition.when.segment, "/when/segment")
        if definition.view is not None:
            _require(session, VIEWS, definition.view, "/view")
    return TriggerDocument(**dict(definition), version=1)


def _require(session: Session, kind: VersionedDocuments, name: str, place: str) -> None:  # type: ignore[type-arg]
    known = {each.name for each in kind.active(session)}
    if name not in known:
        raise RefusedRequestError(
            f"there is no {kind.kind} {name}", place, f"there are: {', '.join(sorted(known)) or 'none'}"
        )


TRIGGERS = VersionedDocuments("trigger", TriggerDefinition, TriggerDocument, _trigger)
