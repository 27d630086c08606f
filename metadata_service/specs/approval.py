"""Why putting a spec in force needs a second person: it makes keys of values, or puts elsewhere what policy protects.

Paths are never sealed, so whoever reads the catalogue sees a key that was a value. And a value that one spec puts at a
protected path is in the clear where another puts it at an open one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from sqlalchemy.orm import Session

from idgraph.model import canonical, paths
from idgraph.model.errors import first_few
from idgraph.model.snapshots import pattern_matches
from idgraph.model.specs import RESERVED_KEY, SpecDefinition, SpecDocument
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.attributes.rules import discovery_defaults, weaker
from metadata_service.specs.catalogue import active_specs, get_spec_version

MOST_REPORTED = 500


class SpecActivation(BaseModel):
    """A stored version that is to map events."""

    name: str
    version: int


def in_force(session: Session, name: str) -> SpecDocument | None:
    """The version that maps events now."""
    return next(iter(active_specs(session, [name])), None)


def opened_by_spec(session: Session, name: str, version: int) -> list[str]:
    """What a stored version would show, as `opened_by_definition`; nothing of the one in force."""
    if (known := in_force(session, name)) is not None and known.version == version:
        return []
    return opened_by_definition(session, get_spec_version(session, name, version).document)


def opened_by_definition(session: Session, definition: SpecDefinition) -> list[str]:
    """What a spec that compiles would show if it mapped events; empty if nothing that none in force shows."""
    others = [each for each in active_specs(session) if share_events(each, definition)]
    opened = [*_value_keys(session, definition, others), *_moved(session, definition, others)]
    return first_few(opened, MOST_REPORTED)


def _value_keys(session: Session, definition: SpecDefinition, others: list[SpecDocument]) -> list[str]:
    allowed = discovery_defaults(session).value_keys
    known = {above for each in others for _, above in flow_of(each).value_keys}
    return [
        f"{definition.name}: /operations{pointer} makes keys of values below {above or 'the root'}"
        for pointer, above in flow_of(definition).value_keys
        if above not in known and not any(paths.is_within(above, each) for each in allowed)
    ]


def _moved(session: Session, definition: SpecDefinition, others: list[SpecDocument]) -> list[str]:
    read = {place for each in others for place in flow_of(each).reads()}
    # As a whole a part hides what changes places in it.
    read |= flow_of(definition).reads(read)
    ways = []
    for place in sorted(read, key=str):
        before = {path for each in others for path in _stored(each, place)}
        if after := _stored(definition, place) - before:
            ways.append((before, after))
    touched = {path for before, after in ways for path in (*before, *after)}
    known = attributes_around(session, touched).values()
    tree = policies_of(session, (each for each in known if not each.sealed_for_review))
    found = {
        f"{definition.name} puts at {to} what {source} protects ({opens.partition(': ')[2]})"
        for before, after in ways
        for source in before
        for to in after
        for opens in weaker(to, tree.policy(source), tree.policy(to))
    }
    return sorted(found)


def _stored(spec: SpecDefinition, place: Any) -> set[str]:
    """Where a spec puts what events have at a place, but what serves for the event alone."""
    identifiers = {each.path for each in spec.identifiers}
    # A key that is not known is one that no attribute has.
    found = {paths.join("*" if key is None else key for key in each) for each in flow_of(spec).outputs(place)}
    return {each for each in found if not paths.is_within(each, RESERVED_KEY) or each in identifiers}


def share_events(one: SpecDefinition, other: SpecDefinition) -> bool:
    """Whether an event may be mapped by either, as far as a pattern and a name, or two equal patterns, show it."""
    return all(
        pattern_matches(a, b) or pattern_matches(b, a)
        for a, b in ((one.source, other.source), (one.event_type, other.event_type))
    )


def flow_of(spec: SpecDefinition) -> Any:
    """Its `ValueFlow`."""
    return _flow_of(canonical.encode(spec.operations))


@lru_cache(maxsize=1024)
def _flow_of(operations: bytes) -> Any:
    # Late: the operations are large, and most requests need none of them.
    from transforms.spec.value_flow import ValueFlow

    return ValueFlow(canonical.decode(operations))
