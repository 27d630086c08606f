"""Reasons for which putting a spec in force needs a second person: it makes keys of values, or does more with
protected values than to put them where they are protected as well.

Paths are never sealed, so readers of the catalogue see a key that was a value. A value that one spec puts at a
protected path is in the clear where another puts it at an open one, makes the order of events or a name of it, or
chooses by it what else it puts somewhere. `specs/input_places.py` says how a place of the input is protected.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.errors import SpecError, first_few
from idgraph.model.snapshots import precedence
from idgraph.model.specs import RESERVED_KEY, IdentifierPlace, SpecDefinition, SpecDocument
from metadata_service.attributes.rules import discovery_defaults, weaker
from metadata_service.specs.catalogue import active_specs, get_spec_version
from metadata_service.specs.input_places import (
    InputPlaces,
    Place,
    ProtectedPlace,
    flow_of,
    share_events,
    stored,
    ways_of,
)

MOST_REPORTED = 500


class SpecActivation(BaseModel):
    """A stored version that is to map events."""

    name: str
    version: int


def in_force(session: Session, name: str) -> SpecDocument | None:
    """The version that maps events now."""
    return next(iter(active_specs(session, [name])), None)


def opened_by_spec(session: Session, name: str, version: int) -> list[str]:
    """Values that a stored version would show, as `opened_by_definition`; none for the one in force."""
    if (known := in_force(session, name)) is not None and known.version == version:
        return []
    return opened_by_definition(session, get_spec_version(session, name, version))


def opened_by_definition(session: Session, definition: SpecDefinition) -> list[str]:
    """Values that a spec that compiles would show if it mapped events, and that the one that maps them now does not
    show. So do values that other specs would show of events that the version in force would leave to them. Raises
    SpecError for an ordinal that nobody may approve."""
    known = in_force(session, definition.name)
    opened = _opened(session, definition)
    if known is not None and _patterns(known) != _patterns(definition):
        opened += opened_by_leaving(session, known)
    return first_few(opened, MOST_REPORTED)


def opened_by_leaving(session: Session, known: SpecDocument) -> list[str]:
    """Values that wider specs would show of the events of one in force that maps them no more. Raises SpecError as
    above."""
    source, event_type = _patterns(known)
    return [
        opens
        for each in active_specs(session)
        if precedence(known) < precedence(each) and share_events(known, each)
        for opens in _opened(session, each.model_copy(update={"source": source, "event_type": event_type}))
    ]


def _patterns(spec: SpecDefinition) -> tuple[str, str]:
    return spec.source, spec.event_type


def _opened(session: Session, definition: SpecDefinition) -> list[str]:
    places = InputPlaces(session, definition)
    return [
        *_value_keys(session, definition, places.known),
        *sorted({*_moved(definition, places), *_used(definition, places)}),
    ]


def _value_keys(session: Session, definition: SpecDefinition, others: list[SpecDocument]) -> list[str]:
    allowed = discovery_defaults(session).value_keys
    known = {above for each in others for _, above in flow_of(each).value_keys}
    return [
        f"{definition.name}: /operations{pointer} makes keys of values below {above or 'the root'}"
        for pointer, above in flow_of(definition).value_keys
        if above not in known and not any(paths.is_within(above, each) for each in allowed)
    ]


def _moved(definition: SpecDefinition, places: InputPlaces) -> Iterator[str]:
    """The places to which it puts values that another place protects more."""
    for place, before, own in places.all():
        known = {path for each in places.known for path, _ in stored(flow_of(each), place)}
        protected = {(path, places.tree) for path in before} | {(path, places.declared) for path in own}
        for to in {path for path, _ in stored(flow_of(definition), place)} - known:
            for source, tree in protected:
                for opens in weaker(to, tree.policy(source), places.tree.policy(to)):
                    yield f"{definition.name} puts at {to} what {source} protects ({opens.partition(': ')[2]})"


def _used(definition: SpecDefinition, places: InputPlaces) -> Iterator[str]:
    """Its other uses of protected values: decisions and computations by them, and the names and order that it makes
    of them."""
    for place in places.protected():
        yield from _computed(definition, place, places)
        yield from _named(definition, place, places)
        _check_ordinal(definition, place, places)
        for name in ("ordinal", "retracts", "id"):
            yield from _stamped(definition, name, place, places)


def _computed(definition: SpecDefinition, place: ProtectedPlace, places: InputPlaces) -> Iterator[str]:
    known = {each for spec in places.known for each in ways_of(flow_of(spec), place.keys).computed}
    for trail, by in ways_of(flow_of(definition), place.keys).computed:
        if (trail, by) not in known:
            yield f"{definition.name}: {by.place} decides or computes by what {_shown(place)} protects"


def _named(definition: SpecDefinition, place: ProtectedPlace, places: InputPlaces) -> Iterator[str]:
    known = {
        (each.type, each.path, is_hashed)
        for spec in places.known
        for each, is_hashed in _identifiers(spec, place.keys, places)
    }
    for each, is_hashed in _identifiers(definition, place.keys, places):
        # One that is readable already shows no more as a hash.
        if not {(each.type, each.path, False), (each.type, each.path, is_hashed)}.isdisjoint(known):
            continue
        if not is_hashed and (places.seals(place) or paths.is_within(each.path, RESERVED_KEY)):
            yield f"{definition.name} makes a readable identifier, {each.type}, of what {_shown(place)} protects"
        elif unnamed := places.unnamed(place):
            yield f"{definition.name} makes an identifier, {each.type}, of what {unnamed} protects: its hash tells equal values"


def _identifiers(
    spec: SpecDefinition, place: Place, places: InputPlaces
) -> Iterator[tuple[IdentifierPlace, bool]]:
    """The identifiers that may have what events have at a place, and whether they are hashed, by what this spec alone says."""
    hashed = {each.type for each in spec.identifiers if places.declared.policy(each.path).is_protected}
    for each in spec.identifiers:
        if _reaches(spec, place, each.path):
            yield each, each.type in hashed


def _stamped(
    definition: SpecDefinition, name: str, place: ProtectedPlace, places: InputPlaces
) -> Iterator[str]:
    """The id, the order, or the id taken back of an event."""
    path = getattr(definition, name)
    if path is None or not _reaches(definition, place.keys, path):
        return
    is_hashed = name != "ordinal" and _is_sealed(definition, place.keys, places)
    for spec in places.known:
        if path == getattr(spec, name) and _reaches(spec, place.keys, path):
            was_hashed = name != "ordinal" and _is_sealed(spec, place.keys, places)
            if is_hashed or not was_hashed:
                return
    if not is_hashed:
        yield f"{definition.name} reads its {name} from what {_shown(place)} protects"
    elif unnamed := places.unnamed(place):
        yield f"{definition.name} reads its {name} from what {unnamed} protects: its hash tells equal values"


def _is_sealed(spec: SpecDefinition, place: Place, places: InputPlaces) -> bool:
    """Whether a spec puts what events have at a place into a protected attribute too, by which ids of it are hashed."""
    return any(places.declared.policy(each).is_protected for each, _ in stored(flow_of(spec), place))


def _check_ordinal(definition: SpecDefinition, place: ProtectedPlace, places: InputPlaces) -> None:
    """Raises SpecError where the ordinal certainly is a sealed value: it is stored beside each value, and no hash has an order."""
    path = definition.ordinal
    if path is None or not (sealed := places.seals(place)):
        return
    if any(path == spec.ordinal and _reaches(spec, place.keys, path) for spec in places.known):
        return
    keys = paths.split(path)
    if any(tuple(each) == keys for each in ways_of(flow_of(definition), place.keys).outputs):
        raise SpecError(
            f"the ordinal is a value that {sealed[0]} protects, and ordinals are stored readable",
            "/ordinal",
            "take a time or a sequence of the event that tells nothing of anybody",
        )


def _reaches(spec: SpecDefinition, place: Place, path: str) -> bool:
    """Whether a spec may put what events have at a place at a path of its output, above or below it."""
    own = paths.split(path)
    return any(
        all(key is None or key == each for key, each in zip(keys, own, strict=False))
        for keys in ways_of(flow_of(spec), place).outputs
    )


def _shown(place: ProtectedPlace) -> str:
    return ", ".join(sorted(place.copied or place.made))
