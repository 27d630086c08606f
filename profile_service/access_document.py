"""The stored data of a person, for an access request: every value with its provenance, whatever a clearance
hides.

Identifiers of other persons are keyed hashes. Values are of the person's fragments, whatever other
identifiers their events showed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from idgraph.model.identifiers import Identifier
from idgraph.projection.behaviour import Behaviour
from merge.identity.components import Person
from profile_service.consents import consents_of
from profile_service.history import History
from profile_service.link_documents import link_document, periods_document, pin_document
from profile_service.links import Links
from profile_service.reader import ProfileReader, origin_document


def access_parts(
    reader: ProfileReader,
    links: Links,
    history: History,
    person: Person,
    hashed: Callable[[Identifier], Identifier],
) -> Iterator[tuple[str, Any]]:
    """Name and JSON data of each part. `hashed` hides an identifier. Raises KeyProviderError, StoreError."""
    profile = reader.profile_of(person, reveal=True)
    explanation = next(each for each in links.explain(Identifier.parse(person.id)) if each.id == profile.id)
    own_identifiers = set(explanation.identifiers)

    def own_name(each: Identifier) -> str:
        return str(each if each in own_identifiers else hashed(each))

    yield "profile", profile.canonical(True)
    yield "consents", [each._asdict() for each in consents_of(profile)]
    fragments = []
    for member in person.members:
        # What is derived is of the person: no fragment has it.
        fragment_profile = reader.profile_of(Person(member.stored.id, (member,), ()), True, Behaviour())
        shown_by = {
            own_name(Identifier.parse(name)): {"source": origin.stamp.source, **origin_document(origin)}
            for name, origin in sorted(reader.shown_by(member).items())
        }
        fragments.append({**fragment_profile.canonical(True), "identifiers": shown_by})
    yield "fragments", fragments
    elsewhere = [
        {"identifier": reader.names.identifier(each), "fragment": str(hashed(Identifier.parse(name)))}
        for name, carried in reader.elsewhere([person]).items()
        for each in carried
    ]
    yield "elsewhere", elsewhere
    yield "links", [link_document(each) for each in explanation.accepted]
    refused = [link_document(each._replace(pin=None)) for each in explanation.refused]
    for each, link in zip(refused, explanation.refused, strict=True):
        each["pair"] = [own_name(end) for end in link.pair]
    yield "refused_links", refused
    pins = [pin_document(each) for each in explanation.pins]
    for each in pins:
        each["pair"] = [own_name(Identifier.parse(end)) for end in each["pair"]]
    yield "decisions", pins
    periods = history.periods([member.stored.id for member in person.members])
    yield "history", [periods_document(*each) for each in periods.items()]
