"""Consents: attributes `consents.PURPOSE.status`, `.source` and `.time`, written by events like all others.

`status` decides, by its policy (`latest` by default). Source and time count only from the event that decided the status: those
of an older event belong to an older consent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from idgraph.model import paths
from idgraph.model.fragments import Origin
from idgraph.model.views import CONSENTS
from merge.identity.components import Person
from profile_service.reader import Profile, ProfileReader

ROOT = CONSENTS
GIVEN, WITHDRAWN = "given", "withdrawn"


class Consent(NamedTuple):
    """A person's decision about one purpose. Every status but `given` is a refusal; so is one that is masked.

    `source` is where the person decided, the event's source if the event does not say it. `time` is as the
    event has it, None without one. `event` and `ordinal` are of the event that decided."""

    purpose: str
    status: str
    source: str
    time: Any
    event: str
    ordinal: int

    @property
    def is_given(self) -> bool:
        return self.status == GIVEN


def consent_of(profile: Profile, purpose: str) -> Consent | None:
    """The consent of a person to one purpose; None if no event said anything that the profile's reader may see."""
    return next((each for each in consents_of(profile) if each.purpose == purpose), None)


def consents_of(profile: Profile) -> Iterator[Consent]:
    """All consents of a person, by purpose."""
    for leaf in profile.leaves:
        root, *rest = paths.split(leaf.path)
        if root != ROOT or len(rest) != 2 or rest[1] != "status":
            continue
        origin = leaf.register.origin
        purpose = rest[0]
        said = {name: _said(profile, purpose, name, origin) for name in ("source", "time")}
        yield Consent(
            purpose,
            leaf.value if isinstance(leaf.value, str) else WITHDRAWN,
            said["source"] if isinstance(said["source"], str) else origin.stamp.source,
            said["time"] if isinstance(said["time"], str | int) else None,
            origin.stamp.event_id,
            origin.stamp.ordinal,
        )


def consents_by_fragment(reader: ProfileReader, persons: Iterable[Person]) -> list[tuple[str, Consent]]:
    """The last decisions in the events of each fragment, with the fragment's id as it is shown, by ordinal. A
    later decision replaces one of the same fragment, of which nothing is kept."""
    found = [
        (reader.shown_name(member.stored.id), consent)
        for person in persons
        for member in person.members
        for consent in consents_of(reader.profile_of(Person(member.stored.id, (member,), ())))
    ]
    return sorted(found, key=lambda each: (each[1].ordinal, each[0], each[1].purpose, each[1].event))


def _said(profile: Profile, purpose: str, name: str, origin: Origin) -> Any:
    path = paths.join((ROOT, purpose, name))
    found = next((leaf for leaf in profile.leaves if leaf.path == path), None)
    return found.value if found is not None and found.register.origin == origin else None
