"""The way of commands to profiles: that of everybody else, through the profile service.

It is one that runs, if `[profiles] url` names it and it answers; else the same application in this process, whose only
caller is the local operator. An error of the application in this process is raised as it is.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import provider_of
from idgraph.model.callers import Caller, Scope
from idgraph.model.errors import IdgraphError, ProfileIndexError
from idgraph.model.identifiers import given_identifier
from profile_service.api.following import Edition
from profile_service.links import Links
from profile_service.service import Followed, ProfileService, ReadingAdapters
from profile_service.wanted import Wanted

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.app.wiring import ReadResources
    from idgraph.client import ProfilesClient
    from idgraph.snapshot_file import PinnedSnapshot
    from idgraph.web.openid import Identity

log = logging.getLogger(__name__)

CONNECT_SECONDS = 1.0
"""How long a command waits for the connection to a service that the configuration names."""


def local_operator() -> Caller:
    """Whoever may read the stores' files and keys sees everything and may do everything; the audit log has the name."""
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
        self._edition = Edition(pinned.etag, pinned.snapshot)
        self.catalogue = cache(pinned.known)
        self._caller = caller
        self.token = secrets.token_urlsafe()

    def edition(self) -> Edition:
        """The snapshot."""
        return self._edition

    def caller(self, token: str) -> Caller | None:
        """The caller, by the token of this process."""
        return self._caller if hmac.compare_digest(token, self.token) else None

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


class Entrance:
    """Profiles as a command sees them. Every method raises ProfileServiceError for a refusal of a service that runs, and in
    this process what the service's functions raise."""

    def __init__(self, service: ProfileService | None, open_client: Callable[[], ProfilesClient]) -> None:
        """`service` is that of this process, None for one that runs elsewhere."""
        self._service = service
        self._open_client = open_client
        self._client: ProfilesClient | None = None

    def lookup(self, identifier: str, reveal: bool, purpose: str) -> dict[str, Any]:
        """An item of `POST /v1/profiles/lookup`, with provenance and the profiles that share the identifier."""
        service = self._service
        if service is None:
            body = {
                "identifiers": [identifier],
                "provenance": True,
                "reveal": reveal,
                "purpose": purpose,
                "sharing": True,
            }
            item: dict[str, Any] = self.call("POST", "profiles", "lookup", body=body)["items"][0]
            return item
        # The function behind the route: making all routes takes longer than a look-up.
        caller, wanted = local_operator(), Wanted(None, provenance=True, reveal=reveal, purpose=purpose)
        wanted.sharing = True
        looked = service.lookup(caller, given_identifier(identifier), wanted)
        service.require_found(bool(looked.profiles or looked.sharing or looked.incomplete))
        return looked.item(identifier, wanted)

    def call(self, method: str, *path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer of a route; `path` are the segments behind `/v1`."""
        if self._client is None:
            self._client = self._open_client()
        return self._client.call(method, *path, body=body)

    def close(self) -> None:
        """Close the client, if there is one."""
        if self._client is not None:
            self._client.close()


@contextmanager
def entrance(settings: Settings) -> Iterator[Entrance]:
    """Opened for one command. Raises KeyProviderError, StoreError."""
    remote = _running(settings)
    if remote is not None:
        with closing(Entrance(None, lambda: remote)) as far:
            yield far
        return
    with (
        local_service(settings) as (service, token),
        closing(Entrance(service, partial(_client_of, service, token))) as here,
    ):
        yield here


@contextmanager
def local_service(settings: Settings) -> Iterator[tuple[ProfileService, str]]:
    """The profile service of one command, in this process, and the token of its one caller. Raises KeyProviderError, StoreError."""
    with wiring.opened_to_read(settings) as resources:
        only = OneCaller(wiring.snapshot_to_read_by(settings), local_operator())
        yield service_of(settings, resources, only), only.token


def service_of(settings: Settings, resources: ReadResources, only: OneCaller) -> ProfileService:
    """The profile service over what is open here."""
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
    with local_service(settings) as (service, _):
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
        url, wiring.metadata_token(settings), connect_seconds=CONNECT_SECONDS, warn=lambda _: None
    )
    if client.is_reached():
        return client
    client.close()
    log.warning("the profile service at %s does not answer; the command reads the stores itself", url)
    return None


def _client_of(service: ProfileService, token: str) -> ProfilesClient:
    from idgraph.client import ProfilesClient
    from idgraph.client.in_process import InProcess
    from profile_service.api.app import create_app

    app = create_app(service)
    for kind in [
        each for each in app.exception_handlers if isinstance(each, type) and issubclass(each, IdgraphError)
    ]:
        # They reach the command as they are.
        del app.exception_handlers[kind]
    return ProfilesClient("http://localhost", token, transport=InProcess(app), warn=lambda _: None)
