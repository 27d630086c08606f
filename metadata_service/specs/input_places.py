"""The places of a spec's input that policy protects, each by the strictest policy that a version of any spec gave it.

All paths count at which a version ever put the value, be it a retired one or one for a source's former name. Each
path has the policy that is in force now. So protecting an attribute reaches back, and opening it, by two persons,
lets go.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from idgraph.model import canonical, paths
from idgraph.model.attributes import AttributeMetadata, EncryptionLevel
from idgraph.model.snapshots import MetadataSnapshot, patterns_overlap, precedence
from idgraph.model.specs import RESERVED_KEY, SpecDefinition, SpecDocument
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.specs.catalogue import active_specs, once_active_specs

Place = tuple[str | None, ...]


class ProtectedPlace(NamedTuple):
    """A place of the input, and the protected paths at which versions put its value. `made` are those that only have what an
    expression made of it and others."""

    keys: Place
    copied: frozenset[str]
    made: frozenset[str]


class InputPlaces:
    """Protected places in the events that a spec would map."""

    def __init__(self, session: Session, definition: SpecDefinition) -> None:
        self._definition = definition
        once = [each for each in once_active_specs(session) if share_events(each, definition)]
        # Versions differ in more than their operations.
        self._flows = {id(flow): flow for flow in map(flow_of, once)}.values()
        self._own = flow_of(definition)
        others = {place for flow in self._flows for place in flow.reads()}
        # As a whole a part hides what changes places in it.
        others |= self._own.reads(others)
        self._others = frozenset(others)
        self._read = sorted(others | self._own.reads(), key=str)
        self.known = _versions_now(session, definition)
        """The versions in force that map these events now: what they do with a value is no news."""
        touched = {path for place in self._read for path in self._touched(place)}
        around = attributes_around(session, touched)
        self._attributes = {path: each for path, each in around.items() if not each.sealed_for_review}
        self.tree = policies_of(session, self._attributes.values())

    @cached_property
    def declared(self) -> Any:
        """The policies without those of the discovery defaults, by which nobody decided on a single attribute."""
        from transforms.schema.diff import AttributeTree

        return AttributeTree(MetadataSnapshot(version=0, attributes=tuple(self._attributes.values())))

    def _touched(self, place: Place) -> Iterator[str]:
        for flow in (*self._flows, self._own):
            yield from (path for path, _ in stored(flow, place))
        for spec in (self._definition, *self.known):
            yield from (each.path for each in spec.identifiers)

    def all(self) -> Iterator[tuple[Place, set[str], set[str]]]:
        """Each place that the spec reads, with the paths at which versions that map events, or did, put its value, and those at
        which this one puts it as it is."""
        for place in self._read:
            yield place, {path for path, _ in self._before(place)}, {path for path, _ in self._copies(place)}

    def protected(self) -> Iterator[ProtectedPlace]:
        """The places with a value that somebody declared to be protected, or not to be for everybody."""
        for place in self._read:
            attributes = {
                each for each in self._before(place) | self._copies(place) if self._is_restricted(each[0])
            }
            copied = frozenset(path for path, is_copy in attributes if is_copy)
            computed = frozenset(path for path, _ in attributes) - copied
            if attributes:
                yield ProtectedPlace(place, copied, computed)

    def _before(self, place: Place) -> set[tuple[str, bool]]:
        if place not in self._others:
            return set()
        return {each for flow in self._flows for each in stored(flow, place)}

    def _copies(self, place: Place) -> set[tuple[str, bool]]:
        return {each for each in stored(self._own, place) if each[1]}

    def _is_restricted(self, path: str) -> bool:
        policy = self.declared.policy(path)
        return bool(policy.is_protected or policy.authorization_level)

    def seals(self, place: ProtectedPlace) -> list[str]:
        """The paths at which its value is encrypted."""
        return sorted(each for each in place.copied | place.made if self.declared.policy(each).is_protected)

    def unnamed(self, place: ProtectedPlace) -> str:
        """The first path that seals even which of its values are equal, and was not declared to name a person; "" for none."""
        found = (
            each
            for each in self.seals(place)
            if self.declared.policy(each).encryption is EncryptionLevel.PROTECTED
            and not self._names_somebody(each)
        )
        return next(found, "")

    def _names_somebody(self, path: str) -> bool:
        found: list[AttributeMetadata | None] = [
            self._attributes.get(each) for each in (path, *paths.ancestors(path))
        ]
        return any(each is not None and each.identifiable for each in found)


def _versions_now(session: Session, definition: SpecDefinition) -> list[SpecDocument]:
    active = active_specs(session)
    # Patterns count as names here: what matches them maps all that they do.
    now = MetadataSnapshot(version=0, specs=tuple(active)).spec_for(definition.source, definition.event_type)
    if now is not None and any(
        precedence(definition) < precedence(each) < precedence(now) and share_events(each, definition)
        for each in active
    ):
        # Not of all these events: another one goes before it, and behind this one.
        now = None
    patterns = definition.source, definition.event_type
    own = [
        each
        for each in active
        if each.name == definition.name and (each.source, each.event_type) == patterns and each is not now
    ]
    return own if now is None else [now, *own]


def share_events(one: SpecDefinition, other: SpecDefinition) -> bool:
    """Whether an event may be mapped by either."""
    return patterns_overlap(one.source, other.source) and patterns_overlap(one.event_type, other.event_type)


def flow_of(spec: SpecDefinition) -> Any:
    """Its `ValueFlow`."""
    return _flow_of(canonical.encode(spec.operations))


@lru_cache(maxsize=1024)
def _flow_of(operations: bytes) -> Any:
    # Late: the operations are large, and most requests need none of them.
    from transforms.spec.value_flow import ValueFlow

    return ValueFlow(canonical.decode(operations))


@lru_cache(maxsize=32_768)
def ways_of(flow: Any, place: Place) -> Any:
    """Its `Ways` for a place of the input: a version never changes."""
    return flow.ways(place)


@lru_cache(maxsize=32_768)
def stored(flow: Any, place: Place) -> frozenset[tuple[str, bool]]:
    """The paths of attributes that may have what events have at a place, and whether as it is, or by its form alone."""
    return frozenset(
        (shown_path(keys), not any(each.computes for each in trail))
        for keys, trail in ways_of(flow, place).outputs.items()
        if not keys or keys[0] != RESERVED_KEY
    )


def shown_path(keys: Place) -> str:
    """The path, with `*` for a key that is not known: one that no attribute has."""
    return paths.join("*" if key is None else key for key in keys)
