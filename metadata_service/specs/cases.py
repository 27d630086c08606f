"""Cases of a spec: payloads with what its operations make of them. They stand in the spec, which everybody reads: so a value that
policy protects, or that needs a clearance, is made up."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from idgraph.model import canonical, paths
from idgraph.model.errors import EventError, SpecError, TransformError
from idgraph.model.events import Event, kind
from idgraph.model.records import SpecCaseRecord
from idgraph.model.specs import SpecCase, SpecDefinition, SpecDocument
from metadata_service.attributes.catalogue import find_attributes
from metadata_service.attributes.policies import attributes_around, policies_of
from transforms.spec.pointers import pointer
from transforms.spec.value_flow import ValueFlow

if TYPE_CHECKING:
    from transforms.schema.diff import AttributeTree
    from transforms.spec.mapping import MappingSpec

STAND_INS: dict[str, Any] = {"text": "sealed", "number": 0, "true or false": False, "null": None}
"""What stands for a sealed value, by its type. A text that has the word is one, too."""
MOST_REPORTED = 3


def run_cases(definition: SpecDefinition) -> list[SpecCaseRecord]:
    """Map the payloads of a spec that was checked, in their order."""
    if not definition.cases:
        return []
    spec = _compiled(definition)
    return [
        SpecCaseRecord(name=each.name, problem=_difference(spec, definition, each))
        for each in definition.cases
    ]


def failing_cases(definition: SpecDefinition) -> list[SpecError]:
    """Of the cases that fail, the place and the difference."""
    return [
        SpecError(f"the case {result.name!r} fails: {result.problem}", f"/cases/{number}")
        for number, result in enumerate(run_cases(definition))
        if result.problem is not None
    ]


def require_cases(definition: SpecDefinition, *, are_allowed_to_fail: bool) -> None:
    """Raises SpecError for the first case that fails."""
    for error in () if are_allowed_to_fail else failing_cases(definition):
        raise SpecError(error.message, error.pointer, "allow_failing_cases publishes the spec nevertheless")


def check_made_up(session: Session, definition: SpecDefinition) -> None:
    """Raises SpecError for a value of a case that becomes a protected attribute, or one that needs a clearance."""
    from transforms.schema.detection import shaped_key

    if not definition.cases:
        return
    flow = ValueFlow(definition.operations)
    leaves = [
        (pointer("cases", number, "payload", *keys), keys, value, flow.outputs(tuple(map(str, keys))))
        for number, case in enumerate(definition.cases)
        for keys, value in _leaves(case.payload)
    ]
    tree = _policies(session, (each for *_, outputs in leaves for each in outputs))
    for place, keys, value, outputs in leaves:
        if any(isinstance(key, str) and shaped_key(key) for key in keys):
            raise SpecError("a key looks like somebody's: write one that is made up", place)
        is_made_up = "sealed" in value.casefold() if isinstance(value, str) else not value
        for path in () if is_made_up else map(_path, outputs):
            policy = tree.policy_of_value(path, value)
            if policy.is_protected or policy.authorization_level:
                hint = 'write a text with the word "sealed", 0, false or null'
                raise SpecError(f"it becomes {path}, which not everybody sees", place, hint)


def make_case(session: Session, definition: SpecDefinition, payload: dict[str, Any], name: str) -> SpecCase:
    """A case of an event: only what everybody sees, and what names nobody, stays as it is; with the result of that."""
    from transforms.spec.masking import mask

    spec, flow = _compiled(definition), ValueFlow(definition.operations)
    found = (each for keys, _ in _leaves(payload) for each in flow.outputs(tuple(map(str, keys))))
    tree = _policies(session, found)
    masked = mask(payload, spec, _event(definition, payload).context(), tree, lambda _: True)
    places = {each.path for each in definition.identifiers} | {definition.id}
    hidden = {
        each
        for found in masked.becomes.values()
        for each in found
        if each in places or "*" in each or tree.policy(each).authorization_level
    }
    hidden |= {
        each.path
        for each in find_attributes(session, set().union(*masked.becomes.values()))
        if each.identifiable
    }
    pointers = {place for place, found in masked.becomes.items() if found & hidden}
    made = SpecCase(name=name, payload=stood_in(masked.document, pointers))
    output, _ = _result(spec, definition, made)
    return made.model_copy(update={"output": output and json.loads(canonical.encode(output))})


def stood_in(value: Any, hidden: Collection[str] = (), place: str = "") -> Any:
    """A masked payload, with something of the same type for each sealed value, and for those at the hidden places."""
    if isinstance(value, dict) and value.get("$protected") is True:
        return STAND_INS.get(str(value.get("type")))
    if isinstance(value, dict):
        return {key: stood_in(below, hidden, place + pointer(key)) for key, below in value.items()}
    if isinstance(value, list):
        return [stood_in(below, hidden, place + pointer(at)) for at, below in enumerate(value)]
    return STAND_INS.get(kind(value).removeprefix("a ").removeprefix("an ")) if place in hidden else value


def _policies(session: Session, places: Iterable[tuple[str | None, ...]]) -> AttributeTree:
    touched = {_path(each) for each in places}
    return policies_of(session, attributes_around(session, touched).values())


def _path(place: tuple[str | None, ...]) -> str:
    return paths.join("*" if key is None else key for key in place)


def _leaves(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(below, (*above, key))
    else:
        yield above, value


def _compiled(definition: SpecDefinition) -> MappingSpec:
    from transforms.spec.mapping import MappingSpec

    return MappingSpec(SpecDocument(**dict(definition) | {"version": 1, "created": datetime.now(UTC)}))


def _event(definition: SpecDefinition, payload: dict[str, Any]) -> Event:
    source, name = ("" if "*" in each else each for each in (definition.source, definition.event_type))
    return Event(source, name, "case", 0, "case", copy.deepcopy(payload), b"{}")


def _result(spec: MappingSpec, definition: SpecDefinition, case: SpecCase) -> tuple[Any, str]:
    """The output, or None and why there is none."""
    try:
        mapped = spec.map(_event(definition, case.payload))
    except (EventError, TransformError) as error:
        return None, f"the event is set aside: {error.message}"
    return (None, "the event maps to nothing") if mapped is None else (mapped.output, "")


def _difference(spec: MappingSpec, definition: SpecDefinition, case: SpecCase) -> str | None:
    output, why = _result(spec, definition, case)
    if output is None or case.output is None:
        return (
            None if output is case.output else why or "the event is mapped, and the case says that it is not"
        )
    wanted, found = (
        {pointer(*keys): canonical.encode(value) for keys, value in _leaves(each)}
        for each in (case.output, output)
    )
    differ = [place for place in sorted({*wanted, *found}) if wanted.get(place) != found.get(place)]
    parts = [
        f"at {place} it gives {_shown(found.get(place))} instead of {_shown(wanted.get(place))}"
        for place in differ
    ]
    return "; ".join(parts[:MOST_REPORTED]) + ("; …" if len(parts) > MOST_REPORTED else "") if parts else None


def _shown(value: bytes | None) -> str:
    return "nothing" if value is None else value.decode(errors="replace")[:60]
