"""Parts of the service for a person's rights: a source of consents, jobs, and callers with the scope for
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from idgraph.model.callers import Caller
from idgraph.model.flows import Flows
from idgraph.model.identifiers import HASHED_PREFIX, Identifier
from idgraph.model.jobs import JobKind, JobRecord, Requester
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.web.refusals import RefusedRequestError, UnknownSubjectError
from profile_service.api.dead_letters import DeadLetterDesk
from profile_service.api.households import Households
from profile_service.api.jobs import Jobs
from profile_service.api.person_tokens import PersonTokens

T = TypeVar("T")
Publish = Callable[[Sequence[bytes]], int]
"""Publishes lines, each ending in a line feed, durably."""


class ConsentInput:
    """The source that takes consents which are recorded over HTTP."""

    def __init__(self, source: str = "", event_type: str = "", publish: Publish | None = None) -> None:
        """Without `publish`, the service records no consents."""
        self._source = source
        self._event_type = event_type
        self._publish = publish

    def takes(self, identifier: Identifier, snapshot: MetadataSnapshot) -> bool:
        """Whether an event with this identifier becomes part of a profile."""
        spec = snapshot.spec_for(self._source, self._event_type)
        return spec is not None and identifier.type in [each.type for each in spec.identifiers]

    def publisher(self, identifier: Identifier, snapshot: MetadataSnapshot) -> Publish:
        """The function that publishes events of this identifier; it raises PublishError and ConfigError.
        Raises RefusedRequestError where no event of it would become part of a profile."""
        if self._publish is None:
            hint = "name a source in `[profiles] consent_source`"
            raise RefusedRequestError("this service records no consents", hint=hint)
        if identifier.value.startswith(HASHED_PREFIX):
            raise RefusedRequestError("an event has identifiers in the clear, and this is a keyed hash")
        if not self.takes(identifier, snapshot):
            hint = "ask by another identifier of the person, or add the type to the spec"
            message = f"no active mapping spec takes {identifier.type} from the source {self._source}"
            raise RefusedRequestError(message, hint=hint)
        return self._publish


class Rights(NamedTuple):
    """The parts of a service that persons' rights need, as far as it has them."""

    consents: ConsentInput = ConsentInput()
    jobs: Jobs | None = None
    households: Households | None = None
    tokens: PersonTokens | None = None
    dead_letters: DeadLetterDesk | None = None
    flows: Flows | None = None


NO_RIGHTS = Rights()


def start_job(
    rights: Rights, caller: Caller, kind: JobKind, stated: Mapping[str, Any], reason: str, nothing: str
) -> JobRecord:
    """Start a job of these parameters for a caller. Raises UnknownSubjectError, which says `nothing`, where there is nothing to
    do, and as `Jobs.start` does."""
    job = required(rights.jobs).start(kind, stated, Requester(caller.name, reason), caller.clearance)
    if job is None:
        raise UnknownSubjectError(nothing)
    return job


def own_job(rights: Rights, caller: Caller, job: str, kind: JobKind) -> JobRecord:
    """A job that this caller started. Raises UnknownSubjectError."""
    found = required(rights.jobs).record(job)
    if found is None or found.kind is not kind or found.origin.who != caller.name:
        raise UnknownSubjectError("this caller has no such job")
    return found


def required(part: T | None) -> T:
    """The part. Raises RefusedRequestError where the service has it not."""
    if part is None:
        raise RefusedRequestError("this service is not configured for it")
    return part
