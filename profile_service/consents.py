"""Consents: attributes `consents.PURPOSE.status`, `.source` and `.time`, written by events like all others.

`status` decides, by its policy (`latest` by default). Source and time count only from the event that decided the status: those
of an older event belong to an older consent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from idgraph.model import paths
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import HASHED_PREFIX, Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.web.refusals import RefusedRequestError
from profile_service.reader import Profile

Publish = Callable[[Sequence[bytes]], int]
"""Publishes lines, each ending in a line feed, durably."""

ROOT = "consents"
GIVEN, WITHDRAWN = "given", "withdrawn"


class Consent(NamedTuple):
    """What a person decided about one purpose. Every status but `given` is a refusal; so is one that is masked.

    `source` is where the person decided, the event's source if the event does not say it. `time` is as the event has it, None
    without one. `event` and `ordinal` are of the event that decided."""

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


class ConsentInput:
    """The source that takes consents which are recorded over HTTP."""

    def __init__(self, source: str = "", event_type: str = "", publish: Publish | None = None) -> None:
        """Without `publish` there is none."""
        self._source = source
        self._event_type = event_type
        self._publish = publish

    def publisher(self, identifier: Identifier, snapshot: MetadataSnapshot) -> Publish:
        """What publishes events of this identifier; it raises PublishError and ConfigError. Raises RefusedRequestError where no
        event of it would become part of a profile."""
        if self._publish is None:
            hint = "name a source in `[profiles] consent_source`"
            raise RefusedRequestError("this service records no consents", hint=hint)
        if identifier.value.startswith(HASHED_PREFIX):
            raise RefusedRequestError("an event has identifiers in the clear, and this is a keyed hash")
        spec = snapshot.spec_for(self._source, self._event_type)
        if spec is None or identifier.type not in [each.type for each in spec.identifiers]:
            hint = "ask by another identifier of the person, or add the type to the spec"
            message = f"no active mapping spec takes {identifier.type} from the source {self._source}"
            raise RefusedRequestError(message, hint=hint)
        return self._publish


def _said(profile: Profile, purpose: str, name: str, origin: Origin) -> Any:
    path = paths.join((ROOT, purpose, name))
    found = next((leaf for leaf in profile.leaves if leaf.path == path), None)
    return found.value if found is not None and found.register.origin == origin else None
