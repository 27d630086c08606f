"""A mapping spec tried on one event: what it makes of it, step by step, without values that policy protects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.errors import EventError, TransformError
from idgraph.model.events import Event
from idgraph.model.fragments import Origin
from idgraph.model.specs import RESERVED_KEY, SpecDefinition, SpecDocument
from metadata_service.attributes.policies import attributes_around, policies_of

MOST_LEAVES_TRIED = 200
"""Leaves of the payload: one that a spec reads is found by mapping the payload without it."""


class PreviewedValue(BaseModel):
    """A leaf of the output. Only the path of a protected one is shown."""

    path: str
    value: Any = None
    is_protected: bool = False
    is_new: bool = Field(default=False, description="No attribute of the catalogue has this path.")
    looks_like: str | None = Field(default=None, description="The kind that a detector finds in the value.")
    identifier: str | None = Field(default=None, description="The type of identifier that it is.")


class PreviewStep(BaseModel):
    """One operation: its place in the spec, and how many leaves there were behind it."""

    pointer: str
    operation: str
    leaves: int = 0
    problem: str | None = None


class PreviewRecord(BaseModel):
    """The output of a spec for one event. `problem` says why the event would be set aside, or that it maps to
    nothing."""

    values: list[PreviewedValue] = []
    steps: list[PreviewStep] = []
    problem: str | None = None
    id: str | None = None
    ordinal: int | None = None
    unread: list[str] = Field(
        default=[],
        description="Leaves of the payload, as JSON pointers, without which the output is the same.",
    )


def preview_event(session: Session, definition: SpecDefinition, payload: dict[str, Any]) -> PreviewRecord:
    """Map one payload by a spec that was checked, under the policies in force. Stores nothing."""
    from transforms.spec.mapping import MappingSpec

    spec = MappingSpec(SpecDocument(**dict(definition) | {"version": 1, "created": datetime.now(UTC)}))
    source, kind = (_name(each) for each in (definition.source, definition.event_type))
    event = Event(source, kind, "preview", 0, "preview", payload, b"{}")
    steps, output = _steps(definition, event)
    record = PreviewRecord(steps=steps, problem=steps[-1].problem if steps else None)
    if record.problem is not None:
        return record
    if not isinstance(output, dict):
        record.problem = "the spec maps this event to nothing"
        return record
    found = sorted({path for path, _ in _leaves(output)})
    attributes = attributes_around(session, found)
    tree = policies_of(session, attributes.values())
    places = {place.path: place.type for place in definition.identifiers}
    try:
        mapped = spec.map(event)
        assert mapped is not None  # noqa: S101 - the output is an object
        leaves = tree.leaves(copy.deepcopy(output), Origin(mapped.stamp, spec.ref))
    except (EventError, TransformError) as error:
        record.problem = error.message
        protected = {path for path in found if tree.policy(path).is_protected}
        looks: dict[str, str] = {}
    else:
        record.ordinal, record.id = mapped.stamp.ordinal, mapped.stamp.event_id
        protected = {each.path for each in leaves.to_seal}
        looks = {each.node.path: str(each.proposal.kind) for each in leaves.unexpected if each.proposal}
    for path, value in _leaves(output):
        hidden = path in protected
        record.values.append(
            PreviewedValue(
                path=path,
                value=None if hidden else value,
                is_protected=hidden,
                is_new=path not in attributes and paths.split(path)[0] != RESERVED_KEY,
                looks_like=looks.get(path),
                identifier=places.get(path),
            )
        )
    if definition.id is not None and (definition.id in protected or record.problem):
        record.id = None
    record.unread = list(_unread(definition, event))
    return record


def _name(pattern: str) -> str:
    return "" if "*" in pattern else pattern


def _steps(definition: SpecDefinition, event: Event) -> tuple[list[PreviewStep], Any]:
    from transforms.spec.compiler import compile_trace

    operations = definition.operations if isinstance(definition.operations, list) else [definition.operations]
    steps: list[PreviewStep] = []
    output: Any = None
    try:
        for step in compile_trace(definition.operations)(copy.deepcopy(event.payload), event.context()):
            output = step.value
            count = sum(1 for _ in _leaves(output)) if isinstance(output, dict) else 0
            steps.append(
                PreviewStep(pointer=f"/operations{step.pointer}", operation=step.operation, leaves=count)
            )
    except TransformError as error:
        name = operations[len(steps)].get("operation", "") if len(steps) < len(operations) else ""
        steps.append(
            PreviewStep(pointer=f"/operations{error.pointer}", operation=name, problem=error.message)
        )
    return steps, output


def _leaves(tree: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield paths.join((*above, key)), value


def _unread(definition: SpecDefinition, event: Event) -> Iterator[str]:
    """A leaf that an operation reads changes the output when it is gone."""
    from transforms import compile_spec
    from transforms.spec.pointers import pointer

    transform = compile_spec(definition.operations)
    output = transform(copy.deepcopy(event.payload), event.context())
    for keys, _ in islice(paths.places(event.payload), MOST_LEAVES_TRIED):
        payload = copy.deepcopy(event.payload)
        at: Any = payload
        for key in keys[:-1]:
            at = at[key]
        del at[keys[-1]]
        try:
            if transform(payload, event.context()) == output:
                yield pointer(*keys)
        except TransformError:
            continue
