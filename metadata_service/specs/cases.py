"""Cases of a spec: payloads with what its operations make of them. They stand in the spec, which everybody reads: so a value that
policy protects, or that needs a clearance, is made up."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from idgraph.model import canonical, paths
from idgraph.model.errors import EventError, SpecError, TransformError
from idgraph.model.events import Event, kind
from idgraph.model.records import SpecCaseRecord
from idgraph.model.specs import SpecCase, SpecDefinition, SpecDocument
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.specs.catalogue import active_specs
from metadata_service.specs.input_places import flow_of, share_events
from transforms.spec.pointers import pointer

if TYPE_CHECKING:
    from transforms.spec.mapping import MappingSpec

STAND_INS: dict[str, Any] = {"text": "sealed", "number": 0, "true or false": False, "null": None}
"""Stand-ins for sealed values, by type. A text that has the word is one, too."""
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
    """The place and the difference of each case that fails."""
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
    """Raises SpecError for a value of a case that becomes a protected attribute, or one that needs a clearance, by the spec or by
    one in force for the same events."""
    from transforms.schema.detection import shaped_key

    if not definition.cases:
        return
    ways = _Ways(session, definition, [each.payload for each in definition.cases])
    for number, case in enumerate(definition.cases):
        for keys, value in paths.places(case.payload):
            place = pointer("cases", number, "payload", *keys)
            if any(isinstance(key, str) and shaped_key(key) for key in keys):
                raise SpecError("a key looks like somebody's: write one that is made up", place)
            is_made_up = "sealed" in value.casefold() if isinstance(value, str) else not value
            path = None if is_made_up else ways.restricted(keys, value)
            if path is not None:
                hint = 'write a text with the word "sealed", 0, false or null'
                raise SpecError(f"it becomes {path}, which not everybody sees", place, hint)


def make_case(session: Session, definition: SpecDefinition, payload: dict[str, Any], name: str) -> SpecCase:
    """A case of an event: only what everybody sees, and what names nobody, stays as it is; with the result of that."""
    from transforms.spec.masking import mask

    spec, ways = _compiled(definition), _Ways(session, definition, [payload])
    made_up = copy.deepcopy(payload)
    for keys, value in paths.places(payload):
        if ways.restricted(keys, value) is not None or ways.names_somebody(keys):
            at: Any = made_up
            for key in keys[:-1]:
                at = at[key]
            at[keys[-1]] = STAND_INS.get(kind(value).removeprefix("a ").removeprefix("an "))
    masked = mask(made_up, spec, _event(definition, made_up).context(), ways.tree, lambda _: True)
    made = SpecCase(name=name, payload=stood_in(masked.document))
    output, _ = _result(spec, definition, made)
    return made.model_copy(update={"output": output and json.loads(canonical.encode(output))})


def stood_in(value: Any, by_form: bool = False) -> Any:
    """A masked payload with something of the same type for each sealed value; `by_form`, with another number or time for one."""
    if isinstance(value, dict) and value.get("$protected") is True:
        like = value.get("like") if by_form else None
        return STAND_INS.get(str(value.get("type"))) if like is None else like
    if isinstance(value, dict):
        return {key: stood_in(below, by_form) for key, below in value.items()}
    return [stood_in(below, by_form) for below in value] if isinstance(value, list) else value


_Keys = tuple[str | int, ...]


class _Ways:
    """The outputs for values of payloads by a spec, and by those in force for the same events."""

    def __init__(
        self, session: Session, definition: SpecDefinition, payloads: Iterable[dict[str, Any]]
    ) -> None:
        specs = [definition, *(each for each in active_specs(session) if share_events(each, definition))]
        self._flows = [flow_of(each) for each in specs]
        self._named = {place.path for each in specs for place in each.identifiers}
        self._named |= {each.id for each in specs if each.id}
        ends = {
            path for payload in payloads for keys, _ in paths.places(payload) for path, _ in self._ends(keys)
        }
        self._around = attributes_around(session, ends)
        self.tree = policies_of(session, self._around.values())

    def restricted(self, keys: _Keys, value: Any) -> str | None:
        """The path of an attribute that the value becomes and that not everybody sees."""
        for path, is_known in sorted(self._ends(keys)):
            if not path:
                return "any attribute"
            # Behind keys that are not known there may be any attribute that is below.
            below = () if is_known else (each for each in self._around if paths.is_within(each, path))
            policies = [self.tree.policy_of_value(path, value), *map(self.tree.policy, below)]
            if any(each.is_protected or each.authorization_level for each in policies):
                return path
        return None

    def names_somebody(self, keys: _Keys) -> bool:
        """Whether the value becomes an identifier, or what can single out a person."""
        named = self._named | {path for path, each in self._around.items() if each.identifiable}
        return any(paths.is_within(path, each) for path, _ in self._ends(keys) for each in named)

    def _ends(self, keys: _Keys) -> set[tuple[str, bool]]:
        """Paths of the output, each as far as its keys are known, and whether that is all of it."""
        places = {place for flow in self._flows for place in flow.outputs(tuple(map(str, keys)))}
        known = {place: tuple(takewhile(lambda key: key is not None, place)) for place in places}
        return {(paths.join(each), each == place) for place, each in known.items()}


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
    expected, actual = (
        {pointer(*keys): canonical.encode(value) for keys, value in paths.places(each)}
        for each in (case.output, output)
    )
    differ = [place for place in sorted({*expected, *actual}) if expected.get(place) != actual.get(place)]
    messages = [
        f"at {place} it gives {_shown(actual.get(place))} instead of {_shown(expected.get(place))}"
        for place in differ
    ]
    return (
        "; ".join(messages[:MOST_REPORTED]) + ("; …" if len(messages) > MOST_REPORTED else "")
        if messages
        else None
    )


def _shown(value: bytes | None) -> str:
    return "nothing" if value is None else value.decode(errors="replace")[:60]
