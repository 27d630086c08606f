"""Triggers: how one is checked before it is saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from idgraph.model import queries
from idgraph.model.triggers import TriggerDefinition, TriggerDocument
from idgraph.model.views import SegmentDefinition
from idgraph.web.refusals import RefusedRequestError
from metadata_service.definitions import SEGMENTS, VIEWS, warned_query
from metadata_service.storage.versions import VersionedDocuments

Checked = TypeVar("Checked")


def _trigger(session: Session, definition: TriggerDefinition) -> TriggerDocument:
    when, query = definition.when, None
    if when.q is not None:
        query = checked_search(definition, when.q, partial(SEGMENTS.check, session)).query
    elif when.attribute is not None:
        _require_open(session, definition.name, when.attribute)
    elif definition.status == "active":
        _require(session, SEGMENTS, definition.segment, "/when/segment")
    if definition.status == "active" and definition.view is not None:
        _require(session, VIEWS, definition.view, "/view")
    return TriggerDocument(**dict(definition), version=1, query=query)


def checked_search(
    definition: TriggerDefinition, q: str, check: Callable[[SegmentDefinition], Checked]
) -> Checked:
    """The result of `check` for the own search `q` of a trigger. Raises RefusedRequestError."""
    search = SegmentDefinition(name=definition.name, q=q, time_zone=definition.when.time_zone)
    try:
        return check(search)
    except RefusedRequestError as error:
        raise RefusedRequestError(error.message, f"/when{error.pointer}", error.hint) from None


def _require_open(session: Session, name: str, attribute: str) -> None:
    """The projection cannot see that a value changes that no key opens."""
    has_it = queries.to_json(queries.Query((queries.Exists(attribute),)))
    try:
        SEGMENTS.check(session, SegmentDefinition(name=name, query=has_it))
    except RefusedRequestError:
        message = f"{attribute} is protected: changes of its value cannot be followed"
        raise RefusedRequestError(
            message, "/when/attribute", "a searchable attribute can be followed"
        ) from None


def _require(session: Session, kind: VersionedDocuments, name: str, place: str) -> None:  # type: ignore[type-arg]
    known = {each.name for each in kind.active(session)}
    if name not in known:
        raise RefusedRequestError(
            f"there is no {kind.kind} {name}", place, f"there are: {', '.join(sorted(known)) or 'none'}"
        )


def trigger_paths(trigger: TriggerDocument) -> set[str]:
    """The paths that a trigger's own search, or its attribute, asks about."""
    own = trigger.own_segment()
    asked = () if own is None else queries.leaves(own.condition)
    return {each.path for each in asked if each.path is not None}


def _warned(session: Session, trigger: TriggerDocument) -> list[str]:
    own = trigger.own_segment()
    return [] if own is None or trigger.status != "active" else warned_query(session, own.condition)


def _stated(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name != "query"}


TRIGGERS = VersionedDocuments(
    "trigger", TriggerDefinition, TriggerDocument, _trigger, _warned, decided=_stated
)
