"""Activities and derived attributes: how each is checked before it is saved, and what the catalogue has of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import product

from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeStatus, DataType
from idgraph.model.behaviour import (
    DERIVED,
    ActivityDefinition,
    ActivityDocument,
    DerivedDefinition,
    DerivedDocument,
)
from idgraph.model.text import name_hint
from idgraph.model.views import CONSENTS
from idgraph.web.refusals import RefusedRequestError
from metadata_service.attributes.catalogue import find_attributes, find_within
from metadata_service.attributes.discovery import apply_schema_changes
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.attributes.rules import RESERVED, path_problem
from metadata_service.definitions import unknown_sources
from metadata_service.models import model_content
from metadata_service.specs.catalogue import active_specs
from metadata_service.storage.edits import Edit
from metadata_service.storage.versions import Held, VersionedDocuments


def _activity(session: Session, definition: ActivityDefinition) -> ActivityDocument:
    from transforms.behaviour.activities import Activity
    from transforms.schema.policy_tree import entry_sources

    Activity(definition)
    read = {path: f"/fields/{name}" for name, path in definition.fields.items()}
    _check_open(session, read | entry_sources(definition), "an entry needs no value to be counted")
    _check_earlier_versions(session, definition)
    _check_readers(session, definition)
    return ActivityDocument(**dict(definition) | {"since": _since(session, definition)}, version=1)


def _since(session: Session, definition: ActivityDefinition) -> datetime | None:
    """The time from which entries are whole: as stated, else as stored, else from now on, when the activity comes into force."""
    if "since" in definition.model_fields_set:
        return definition.since
    known = ACTIVITIES.held(session, definition.name)
    if definition.status == "active" and (known is None or known.document.status != "active"):
        return datetime.now(UTC)
    return None if known is None else known.document.since


def _check_open(session: Session, read: Mapping[str, str], hint: str) -> None:
    """`read` has by path its place in the definition."""
    tree = policies_of(session, attributes_around(session, filter(None, read)).values())
    for path, place in read.items():
        if path and path != RESERVED and tree.policy(path).is_protected:
            raise RefusedRequestError(
                f"policy protects {path}, and behaviour is readable",
                place,
                f"name attributes that are not protected: {hint}",
            )


def _check_earlier_versions(session: Session, definition: ActivityDefinition) -> None:
    """Entries of earlier versions that count have fields of the same paths, so that their levels are those of today's paths."""
    known = ACTIVITIES.held(session, definition.name)
    newest, generation = (known.number, known.document.generation) if known else (0, 0)
    if definition.generation < generation:
        raise RefusedRequestError(f"the activity is at generation {generation}", "/generation", "raise it")
    for version in range(1, newest + 1):
        earlier = ACTIVITIES.at(session, version, definition.name).document
        for name, path in earlier.fields.items():
            if earlier.generation == definition.generation and definition.fields.get(name, path) != path:
                raise RefusedRequestError(
                    f"{name} is {path} in entries of version {version}",
                    paths.pointer("fields", name),
                    "name another field, or raise `generation`: then earlier entries do not count",
                )


def _warnings(session: Session, saved: ActivityDocument) -> list[str]:
    """Where entries stay of events that the activity names no more."""
    known = ACTIVITIES.held(session, saved.name)
    if known is None or known.document.generation != saved.generation:
        return []
    names = ("source", "event_type", "condition", "time")
    return [_STAY] if any(getattr(known.document, each) != getattr(saved, each) for each in names) else []


_STAY = "entries of events that it named before still count: if it names fewer now, raise `generation` and backfill"


def _check_readers(session: Session, definition: ActivityDefinition) -> None:
    readers = [each for each in DERIVED_ATTRIBUTES.active(session) if definition.name in each.activities]
    if definition.status != "active" and readers:
        names = ", ".join(each.name for each in readers)
        raise RefusedRequestError(
            f"derived attributes read the activity: {names}", "/status", "retire these first"
        )
    for each in readers:
        if missing := _fields_read(each) - definition.fields.keys():
            raise RefusedRequestError(
                f"the derived attribute {each.name} reads the field {min(missing)}", "/fields"
            )


def _fields_read(definition: DerivedDefinition) -> set[str]:
    """The fields that a window or sessions name."""
    if definition.sessions is not None:
        return set(definition.sessions.fields)
    return {definition.window.field} if definition.window and definition.window.field else set()


def _derived(session: Session, definition: DerivedDefinition) -> DerivedDocument:
    from transforms.behaviour.derivations import compile_derived

    document = DerivedDocument(**dict(definition), version=1)
    # Where the extra is missing, a model can still be retired.
    if definition.status == "active" or definition.model is None:
        compile_derived(document, partial(model_content, session))
    if definition.status == "active":
        _check_open(session, attributes_read(definition), "others have no value here")
        _check_path(session, definition)
        _check_read(session, definition)
        _check_activities(session, definition)
    return document


def attributes_read(definition: DerivedDefinition) -> dict[str, str]:
    """By path of an attribute that an expression or a model reads, its place in the definition."""
    from transforms.schema.policy_tree import expression_sources

    if definition.model is not None:
        return {each.path: f"/model/inputs/{at}/path" for at, each in enumerate(definition.model.inputs)}
    return (
        dict.fromkeys(expression_sources(definition.expression), "/expression")
        if definition.expression
        else {}
    )


def _check_read(session: Session, definition: DerivedDefinition) -> None:
    """Expressions read no expression and no model, models no model: such a value would never be there."""
    others = [each for each in DERIVED_ATTRIBUTES.active(session) if each.name != definition.name]
    for each in (definition, *others):
        _check_pair(definition, each, None)
        _check_pair(each, definition, "/path")


def _check_pair(reader: DerivedDefinition, other: DerivedDefinition, place: str | None) -> None:
    if other.kind != "model" and (reader.kind, other.kind) != ("expression", "expression"):
        return
    for path, read_at in attributes_read(reader).items():
        if path and paths.is_within(path, other.path):
            raise RefusedRequestError(
                f"the {reader.kind} of {reader.name} reads {path} of the {other.kind} of {other.name}, and never has a value of it",
                read_at if place is None else place,
                "expressions read attributes, windows, sessions and patterns; models read expressions too",
            )


def _warned_derived(session: Session, saved: DerivedDocument) -> list[str]:
    """Attributes and fields that it reads and nothing has."""
    if saved.status != "active":
        return []
    read = attributes_read(saved)
    if saved.model is not None:
        known = {each.path for each in find_attributes(session, read)}
        return [f"no attribute is called {path}: its default counts" for path in read if path not in known]
    return unknown_sources(session, read) if read else list(_unknown_fields(session, saved))


def _unknown_fields(session: Session, saved: DerivedDocument) -> Iterator[str]:
    """Warnings of names in conditions that are neither fields nor what a pattern shows beside them."""
    from transforms.schema.policy_tree import expression_sources

    fields = {field for name in saved.activities for field in ACTIVITIES.get(session, name).fields}
    pattern, one = saved.pattern, saved.window or saved.sessions
    conditions = (
        {"/pattern/define" + paths.pointer(name): text for name, text in pattern.define.items()}
        if pattern
        else {}
    )
    if one is not None and one.condition is not None:
        conditions[f"/{saved.kind}/condition"] = one.condition
    others = _VARIABLE.findall(pattern.pattern) if pattern else []
    for place, text in conditions.items():
        for path in filter(None, sorted(expression_sources(text))):
            keys = paths.split(path)
            if pattern and keys[0] == "first":
                keys = keys[1:]
            if keys and keys[0] in (*others, *(("previous",) if pattern else ())):
                keys = keys[1:]
            if keys and keys[0] not in fields and not (pattern and keys[0] in ("activity", "time")):
                hint = (
                    name_hint(keys[0], sorted(fields)) or f"they have: {', '.join(sorted(fields)) or 'none'}"
                )
                yield f"{place}: entries of {', '.join(saved.activities)} have no field {keys[0]}; {hint}"


def _check_path(session: Session, definition: DerivedDefinition) -> None:
    from transforms.spec.output_tree import place_of

    path = definition.path
    problem = path_problem(path)
    if problem is None and paths.split(path)[0] in (RESERVED, CONSENTS):
        problem = "the path is reserved"
    if problem:
        raise RefusedRequestError(problem, "/path")
    around = [*find_attributes(session, (path, *paths.ancestors(path))), *find_within(session, path)]
    for each in around:
        # Another definition may have had the path; those in force are looked at below.
        if not (each.source or "").startswith(DERIVED) and each.status is not AttributeStatus.RETIRED:
            raise RefusedRequestError(
                f"events have values at {each.path}", "/path", "choose a path that no attribute has"
            )
    for spec in active_specs(session):
        if (place := place_of(spec.operations, path)) is not None:
            raise RefusedRequestError(f"the spec {spec.name} writes to {path} by {place}", "/path")
    for other in DERIVED_ATTRIBUTES.active(session):
        if other.name != definition.name and (
            paths.is_within(other.path, path) or paths.is_within(path, other.path)
        ):
            raise RefusedRequestError(f"{other.name} is derived at {other.path}", "/path")


def _check_activities(session: Session, definition: DerivedDefinition) -> None:
    known = {each.name: each for each in ACTIVITIES.active(session)}
    for name in definition.activities:
        if name not in known:
            member = "activities" if definition.pattern else "activity"
            names = ", ".join(sorted(known)) or "none"
            raise RefusedRequestError(
                f"there is no activity {name}", f"/{definition.kind}/{member}", f"there are: {names}"
            )
        if missing := _fields_read(definition) - known[name].fields.keys():
            raise RefusedRequestError(
                f"entries of {name} have no field {min(missing)}",
                "/window/field" if definition.window else "/sessions/fields",
                f"they have: {', '.join(sorted(known[name].fields)) or 'none'}",
            )


FieldTypes = Mapping[str, Mapping[str, DataType]]
"""By activity and field, the type of its values as the catalogue has it."""
_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def derived_paths(definition: DerivedDefinition, types: FieldTypes) -> Iterator[tuple[str, DataType]]:
    """The paths that a derived attribute's values stand at, with their types as far as they are known; else text."""
    path = definition.path
    if definition.window is not None:
        kinds = {"count": DataType.INTEGER, "distinct": DataType.INTEGER}
        kinds |= dict.fromkeys(("last_k", "top_k"), DataType.ARRAY)
        kinds |= dict.fromkeys(("sum", "average", "min", "max"), DataType.NUMBER)
        yield path, definition.data_type or kinds.get(definition.window.function, DataType.STRING)
    elif definition.sessions is not None:
        yield f"{path}.count", DataType.INTEGER
        known = types.get(definition.sessions.activity, {})
        for session in ("current", "last"):
            for each in ("begin", "end", "entries"):
                yield f"{path}.{session}.{each}", DataType.INTEGER
            for place, field in product(("first", "last"), definition.sessions.fields):
                yield f"{path}.{session}.{place}.{field}", known.get(field, DataType.STRING)
    elif definition.pattern is not None:
        for each in ("count", "last.begin", "last.end"):
            yield f"{path}.{each}", DataType.INTEGER
        fields = {
            field: kind for name in definition.activities for field, kind in types.get(name, {}).items()
        }
        for variable in dict.fromkeys(_VARIABLE.findall(definition.pattern.pattern)):
            for field, kind in fields.items():
                yield f"{path}.last.{variable}.{field}", kind
    else:
        yield path, definition.data_type or (DataType.NUMBER if definition.model else DataType.STRING)


def _field_types(session: Session, activities: Iterable[str]) -> FieldTypes:
    fields = {name: ACTIVITIES.get(session, name).fields for name in activities}
    asked = {path for each in fields.values() for path in each.values()}
    kinds = {each.path: each.shown_type for each in find_attributes(session, asked)}
    return {
        name: {field: kinds.get(path, DataType.STRING) for field, path in each.items()}
        for name, each in fields.items()
    }


class _DerivedAttributes(VersionedDocuments[DerivedDefinition, DerivedDocument]):
    def save(self, edit: Edit, document: DerivedDocument) -> tuple[Held[DerivedDocument], bool]:
        """And let the catalogue have its paths."""
        held, is_new = super().save(edit, document)
        if document.status == "active":
            source = DERIVED + document.name
            types = _field_types(edit.session, document.activities)
            entries = [
                {"path": path, "data_type": kind, "source": source, "first_event": source}
                for path, kind in derived_paths(document, types)
            ]
            apply_schema_changes(edit, entries)
        return held, is_new


ACTIVITIES = VersionedDocuments("activity", ActivityDefinition, ActivityDocument, _activity, _warnings)
DERIVED_ATTRIBUTES = _DerivedAttributes(
    "derived_attribute", DerivedDefinition, DerivedDocument, _derived, _warned_derived
)
