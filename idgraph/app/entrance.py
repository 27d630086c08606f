"""The way of commands to profiles: that of everybody else, through the profile service.

It is a running service, if `[profiles] url` names one and it answers. Else it is the same application in this
process, whose only caller is the local operator. An error of the application in this process is raised as it
is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.key_providers import ensure_keyring, provider_of
from idgraph.app.adapters.shared_state import open_documents
from idgraph.model.callers import Caller, Scope
from idgraph.model.errors import ProfileIndexError, ProfileServiceError, QueryError
from idgraph.model.identifiers import given_identifier
from profile_service.service import Followed, ProfileService, ReadingAdapters
from profile_service.wanted import Wanted

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.app.wiring import ReadResources
    from idgraph.client import ProfilesClient
    from idgraph.model.shared_documents import SharedDocuments
    from idgraph.model.snapshots import PinnedSnapshot
    from idgraph.web.openid import Identity
    from profile_service.links import Links

log = logging.getLogger(__name__)

B = TypeVar("B", bound=BaseModel)

CONNECT_SECONDS = 1.0
"""The longest wait of a command for the connection to a service that the configuration names."""


def local_operator() -> Caller:
    """The person who may read the stores' files and keys sees everything and may do everything; the audit log
    has the name."""
    return Caller(
        name=wiring.operator_name(),
        digest="",
        expires=None,
        clearance=100,
        may_reveal=True,
        scopes=frozenset(Scope),
    )


class OneCaller:
    """The snapshot and the caller of one command, in place of those that a service follows."""

    def __init__(self, pinned: PinnedSnapshot, caller: Caller) -> None:
        self._pinned = pinned
        self.catalogue = cache(pinned.known)
        self.model = pinned.model or pinned.snapshot.models.get
        self._caller = caller

    def edition(self) -> PinnedSnapshot:
        """The snapshot."""
        return self._pinned

    def caller(self, token: str) -> Caller | None:  # noqa: ARG002 - a command has none
        """Nobody."""
        return None

    def caller_named(self, name: str) -> Caller | None:
        """The caller, by its name."""
        return self._caller if name == self._caller.name else None

    def admitted(self, found: Identity) -> Caller | None:  # noqa: ARG002 - no issuer is asked
        """Nobody."""
        return None

    def still(self, caller: Caller) -> Caller | None:
        """The caller itself."""
        return caller

    def is_ready(self) -> bool:
        """Always."""
        return True


class Entrance(Protocol):
    """Profiles as a command sees them: answers of routes."""

    def lookup(self, identifier: str, reveal: bool, purpose: str) -> dict[str, Any]:
        """An item of `POST /v1/profiles/lookup`, with provenance and the profiles that share the identifier."""
        ...

    def timeline(
        self, identifier: str, activities: Sequence[str], limit: int, since: int | None, until: int | None
    ) -> dict[str, Any]:
        """The answer of `GET /v1/profiles/IDENTIFIER/timeline`."""
        ...

    def trigger_ledger(self, name: str, limit: int) -> dict[str, Any]:
        """The answer of `GET /v1/triggers/NAME/ledger`."""
        ...

    def preview_derived(self, definition: dict[str, Any], persons: int) -> dict[str, Any]:
        """The answer of `POST /v1/derived-attributes/preview`."""
        ...

    def search(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of `POST /v1/search`."""
        ...

    def count(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of `POST /v1/search/count`."""
        ...

    def facets(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of `POST /v1/search/facets`."""
        ...


class _Here:
    """By the functions behind the routes, which raise their errors as they are."""

    def __init__(self, service: ProfileService, documents: Callable[[], SharedDocuments]) -> None:
        self._service = service
        self._documents = documents
        self._caller = local_operator()

    def lookup(self, identifier: str, reveal: bool, purpose: str) -> dict[str, Any]:
        wanted = Wanted(None, provenance=True, reveal=reveal, purpose=purpose)
        wanted.sharing = True
        self._service.require_rights(self._caller, wanted)
        looked = self._service.lookup(self._caller, given_identifier(identifier), wanted)
        self._service.require_found(bool(looked.profiles or looked.sharing or looked.incomplete))
        return looked.item(identifier, wanted)

    def timeline(
        self, identifier: str, activities: Sequence[str], limit: int, since: int | None, until: int | None
    ) -> dict[str, Any]:
        from profile_service.timeline import TimelineRequest, timeline

        wanted = TimelineRequest(activities, since, until, limit)
        return timeline(self._service, self._caller, given_identifier(identifier), wanted).model_dump()

    def trigger_ledger(self, name: str, limit: int) -> dict[str, Any]:
        from profile_service.trigger_ledger import ledger_of

        with closing(self._documents()) as self._service.documents:
            return ledger_of(self._service, self._caller, name, limit)

    def preview_derived(self, definition: dict[str, Any], persons: int) -> dict[str, Any]:
        from profile_service.api.routes.previews import DerivedPreviewBody, derived_preview

        body = _read(DerivedPreviewBody, {"definition": definition, "sample": persons})
        return derived_preview(self._service, self._caller, body)

    def search(self, body: dict[str, Any]) -> dict[str, Any]:
        from profile_service.request_bodies import SearchBody
        from profile_service.searching import search

        return search(self._service, self._caller, _read(SearchBody, body))

    def count(self, body: dict[str, Any]) -> dict[str, Any]:
        from profile_service.request_bodies import QueryBody
        from profile_service.searching import count

        return count(self._service, self._caller, _read(QueryBody, body))

    def facets(self, body: dict[str, Any]) -> dict[str, Any]:
        from profile_service.request_bodies import FacetBody
        from profile_service.searching import facets

        return facets(self._service, self._caller, _read(FacetBody, body))


class _Remote:
    """By a service that runs. Every method raises ProfileServiceError, which names the service."""

    def __init__(self, client: ProfilesClient, url: str | None) -> None:
        self._client = client
        self._url = url

    def lookup(self, identifier: str, reveal: bool, purpose: str) -> dict[str, Any]:
        reading = {"provenance": True, "reveal": reveal, "purpose": purpose, "sharing": True}
        answer = self._call("profiles", "lookup", body={"identifiers": [identifier], **reading})
        item: dict[str, Any] = answer["items"][0]
        return item

    def timeline(
        self, identifier: str, activities: Sequence[str], limit: int, since: int | None, until: int | None
    ) -> dict[str, Any]:
        params: dict[str, Any] = {"activity": list(activities), "limit": limit}
        params |= {name: each for name, each in (("since", since), ("until", until)) if each is not None}
        return self._call("profiles", identifier, "timeline", method="GET", params=params)

    def trigger_ledger(self, name: str, limit: int) -> dict[str, Any]:
        return self._call("triggers", name, "ledger", method="GET", params={"limit": limit})

    def preview_derived(self, definition: dict[str, Any], persons: int) -> dict[str, Any]:
        body = {"definition": definition, "sample": persons}
        return self._call("derived-attributes", "preview", body=body)

    def search(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._call("search", body=body)

    def count(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._call("search", "count", body=body)

    def facets(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._call("search", "facets", body=body)

    def _call(
        self,
        *path: str,
        body: dict[str, Any] | None = None,
        method: str = "POST",
        params: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._client.call(method, *path, body=body, params=params)
        except ProfileServiceError as error:
            message = f"{error} (`[profiles] url` is {self._url}, asked by the token of `[metadata]`)"
            raise ProfileServiceError(message, error.status) from None
        return found


def _read(kind: type[B], body: dict[str, Any]) -> B:
    """A body of a command. Raises QueryError for parts that a request may not have."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        raise QueryError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from None


@contextmanager
def entrance(settings: Settings) -> Iterator[Entrance]:
    """Opened for one command. Raises KeyProviderError, StoreError."""
    remote = _running(settings)
    if remote is not None:
        with remote:
            yield _Remote(remote, settings.profiles.url)
        return
    ensure_keyring(settings)
    with local_service(settings) as service:
        yield _Here(service, partial(open_documents, settings))


@contextmanager
def local_service(settings: Settings) -> Iterator[ProfileService]:
    """The profile service of one command, in this process. Raises KeyProviderError, StoreError."""
    with wiring.opened_to_read(settings) as resources:
        only = OneCaller(metadata_access.snapshot_to_read_by(settings), local_operator())
        yield service_of(settings, resources, only)


def service_of(settings: Settings, resources: ReadResources, only: OneCaller) -> ProfileService:
    """The profile service over the stores and index that are open here."""
    provider = provider_of(settings)
    return ProfileService(
        resources,
        only,
        wiring.audit_log(settings),
        lambda: wiring.require_own_keyring(settings, resources, notes=False),
        is_local=settings.store.kind == "sqlite",
        cursor_key=provider.purpose_key("cursors"),
        project=partial(project_now, resources, only),
    )


@contextmanager
def own_links(settings: Settings) -> Iterator[tuple[ProfileService, Links]]:
    """The service of one command, with the links of all persons. Raises KeyProviderError, StoreError."""
    with local_service(settings) as service:
        yield service, service.links(service.reader(local_operator()))


def project_now(
    resources: ReadResources | ReadingAdapters, following: Followed, fragments: Collection[str]
) -> bool:
    """Bring the index up to date, so that a search shows a decision when it is answered."""
    from idgraph.projection.projection import Projection
    from transforms.schema.diff import AttributeTree

    rules = AttributeTree(following.edition().snapshot).index_rules
    try:
        return (
            not Projection(resources.store, resources.index, lambda: rules).project(sorted(fragments)).left()
        )
    except ProfileIndexError as error:
        log.warning("%s; searches show a decision once a flow has projected the outbox", error)
        return False


def _running(settings: Settings) -> ProfilesClient | None:
    """A client of the service that the configuration names, if it answers."""
    if settings.profiles.url is None:
        return None
    from idgraph.client import ProfilesClient

    url = settings.profiles.url
    client = ProfilesClient(
        url, metadata_access.metadata_token(settings), connect_seconds=CONNECT_SECONDS, warn=lambda _: None
    )
    if client.is_reached():
        return client
    client.close()
    if not settings.keyring_file().exists():
        raise ProfileServiceError(
            f"the profile service at {url} does not answer, and {settings.directory} has no profiles to read",
            None,
        )
    log.warning("the profile service at %s does not answer; the command reads the stores itself", url)
    return None
