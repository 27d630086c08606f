"""A request for a page: whose it is, what was posted, what they may do, and whom it asks for them."""

from __future__ import annotations

import hmac
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from idgraph.client import AsyncProfilesClient, ProfilesClient
from idgraph.model.callers import Caller
from idgraph.model.classification import Classification
from idgraph.model.errors import IdgraphError, ProfileServiceError
from idgraph.model.jobs import JobState
from idgraph.web.cursors import PageRequest
from idgraph.web.problems import STATUS
from idgraph.web.refusals import PreconditionError, RefusedRequestError
from metadata_service.api.access import may_call, require_right
from metadata_service.api.service import MetadataService
from metadata_service.attributes.rules import classification_levels
from metadata_service.documents.problems import DocumentError
from metadata_service.storage.sessions import Session, SignInSessions
from metadata_service.ui.frame import HOME, render

SIGN_IN = "/ui/sign-in"
MOST_FORM_BYTES = 2 << 20
MOST_FILE_BYTES = 17 << 20
"""A little more than a model may have: its check says so."""
SECONDS = 5.0
CONNECT_SECONDS = 1.0
UNCONFIGURED = 422
"""The status of a call for which the profile service lacks a part."""
START_SECONDS = 60.0
"""A job is started once its stores are open and its work is planned."""

Text = Annotated[str, Query(max_length=1024)]
Cursor = Annotated[str | None, Query(max_length=10_000)]
Number = Annotated[int | None, Query(ge=0, lt=2**31)]


class NotSignedInError(Exception):
    """The page needs a session."""


class StaleFormError(Exception):
    """A form was sent by another site, or belongs to a session that ended."""


class ProfileSource(NamedTuple):
    """The address of the profile service."""

    url: str
    ca_file: FilePath | None = None
    allow_plain_http: bool = False

    def client(self, token: str, seconds: float = SECONDS) -> ProfilesClient:
        """Asks with somebody's own token."""
        return ProfilesClient(self.url, token, seconds, **self._options())

    def async_client(self, token: str) -> AsyncProfilesClient:
        """The same for asyncio."""
        return AsyncProfilesClient(self.url, token, SECONDS, **self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "ca_file": self.ca_file,
            "allow_plain_http": self.allow_plain_http,
            "connect_seconds": CONNECT_SECONDS,
            # They repeat what was typed, which no log has; pages show those of their own searches.
            "warn": lambda _: None,
        }


class OwnPage:
    """A page for somebody who is signed in. Its rights are those of the calls behind it."""

    def __init__(self, request: Request, session: Session) -> None:
        self.request = request
        self.session = session
        self.caller = session.caller
        self.service: MetadataService = request.app.state.service
        self.database = self.service.database

    @property
    def rights(self) -> Caller:
        """The person's rights in the profile service."""
        return self.caller.caller("", None)

    def require(self, method: str, path: str) -> None:
        """Raises ForbiddenError for a call that the person may not make."""
        if not self.may(method, path):
            require_right(self.caller, method, path)

    def may(self, method: str, path: str) -> bool:
        """Whether `require` lets pass."""
        return may_call(self.database, self.caller, method, path)

    @property
    def clearances(self) -> list[tuple[int, str]]:
        """The classifications that each clearance adds to the one before, by the levels in force."""
        with self.database.read() as reading:
            levels = classification_levels(reading)
        shown: dict[int, list[str]] = {}
        for each in Classification:
            shown.setdefault(levels.policy(each).authorization_level, []).append(str(each))
        return [(level, " and ".join(names)) for level, names in sorted(shown.items())]

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        """The answer; its template asks `own`, this page, for what the person may do and for the call behind it."""
        return render(self.request, template, self.session, status, own=self, **context)

    def on_refusal(self, again: Callable[..., Response], *arguments: Any, **kept: Any) -> None:
        """Set the answer to a form that is refused, from here on: `again(page, ...)`, which also gets `status` and
        `problem`."""

        def answer(status: int, problem: str) -> Response:
            if status == 412:
                # The stored state is shown: the form goes on from there.
                kept.pop("etag", None)
                problem += _sent(self.request.state.fields)
            return again(self, *arguments, status=status, **{"problem": problem} | kept)

        self.request.state.again = answer

    def curl(self, path: str, /, **parameters: Any) -> str:
        """The call behind a page, without anybody's token."""
        return _curl(str(self.request.base_url), path, **parameters)

    def curl_profiles(self, path: str, /, **parameters: Any) -> str:
        """The same, of the profile service."""
        return _curl(self.profile_source.url, path, **parameters)

    def curl_post(self, path: str, body: dict[str, Any]) -> str:
        """The same for a call with a body."""
        content = shlex.quote(json.dumps({name: value for name, value in body.items() if value is not None}))
        return f"{self.curl_profiles(path)} -H 'Content-Type: application/json' -d {content}"

    @property
    def profile_source(self) -> ProfileSource:
        """The address of the profile service. Raises ProfileServiceError if there is none."""
        source: ProfileSource | None = self.request.app.state.profile_source
        if source is None:
            raise ProfileServiceError("no profile service is configured ([profiles] url)", 503)
        return source

    @property
    def can_ask(self) -> bool:
        """Whether there is a profile service that the person may call."""
        return self.request.app.state.profile_source is not None and self.session.profiles_token is not None

    def profiles(self, seconds: float = SECONDS) -> ProfilesClient:
        """Asks with the person's own token. Raises ProfileServiceError where there is no service, or no token."""
        source = self.profile_source
        if self.session.profiles_token is None:
            raise ProfileServiceError("your session has no token of the role profiles", 403)
        return source.client(self.session.profiles_token, seconds)

    def ask(self, method: str, *path: str, seconds: float = SECONDS, **asked: Any) -> Any:
        """One call of the profile service in the person's name. Raises ProfileServiceError."""
        with self.profiles(seconds) as client:
            return client.call(method, *path, **asked)

    def preview(self, method: str, *path: str, **asked: Any) -> dict[str, Any]:
        """The progress of a preview that such a call starts or looks at; or its `problem`, with its `status`."""
        seconds = START_SECONDS if method == "POST" else SECONDS
        try:
            found: dict[str, Any] = self.ask(method, *path, seconds=seconds, **asked)
            if found["state"] == JobState.FAILED:
                found["problem"] = self.ask("GET", "jobs", found["id"]).get("error") or "its process ended"
        except ProfileServiceError as error:
            return {"problem": said(error), "status": error.status}
        return found


def items_of(client: ProfilesClient, *path: str, **params: Any) -> list[dict[str, Any]]:
    """A list of the profile service; empty where it lacks the part. Raises ProfileServiceError."""
    try:
        return list(client.call("GET", *path, params=params)["items"])
    except ProfileServiceError as error:
        if error.status != UNCONFIGURED:
            raise
        return []


def sessions_of(request: Request) -> SignInSessions:
    """The sessions of the application."""
    return cast(SignInSessions, request.app.state.sessions)


def cookie_name(request: Request) -> str:
    """By https no other host and no plain connection can set the cookie; by plain HTTP, on this machine, browsers refuse
    that name."""
    return "__Host-idgraph-session" if request.url.scheme == "https" else "idgraph-session"


def find_session(request: Request, is_use: bool = False) -> Session | None:
    """The session of this request; a use keeps it alive."""
    session_id = request.cookies.get(cookie_name(request))
    return sessions_of(request).find(session_id, is_use) if session_id else None


def _opened(is_use: Callable[[Request], bool]) -> Any:
    def opened(request: Request) -> OwnPage:
        session = find_session(request, is_use(request))
        if session is None:
            raise NotSignedInError
        return OwnPage(request, session)

    return Depends(opened)


SignedIn = Annotated[OwnPage, _opened(lambda _: True)]
Watching = Annotated[OwnPage, _opened(lambda _: False)]
"""A call that a page makes by itself does not keep the session alive."""
Polled = Annotated[OwnPage, _opened(lambda request: "hx-request" not in request.headers)]
"""A page that asks for itself again and again keeps the session alive only when a person opens it."""


async def posted(request: Request) -> dict[str, str]:
    """The fields of a form of this site. Raises StaleFormError, RefusedRequestError."""
    body = await _body(request, MOST_FORM_BYTES)
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=300))
    except ValueError:
        raise RefusedRequestError("the form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields.items()}


async def _body(request: Request, most: int) -> bytes:
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or (
        origin and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise StaleFormError
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise RefusedRequestError(f"a form has at most {most:,} bytes")
    except ClientDisconnect:
        raise RefusedRequestError("the connection ended before the form did") from None
    return body


Fields = Annotated[dict[str, str], Depends(posted)]


def _own_fields(page: SignedIn, fields: Fields) -> dict[str, str]:
    given = page.request.headers.get("x-csrf-token") or fields.get("csrf", "")
    if not hmac.compare_digest(given.encode(), page.session.csrf.encode()):
        raise StaleFormError
    page.request.state.fields = fields
    return fields


OwnFields = Annotated[dict[str, str], Depends(_own_fields)]
"""The fields of a form that this session was given."""


async def _own_file(page: SignedIn, request: Request) -> bytes:
    content = await _body(request, MOST_FILE_BYTES)
    if not hmac.compare_digest(request.headers.get("x-csrf-token", "").encode(), page.session.csrf.encode()):
        raise StaleFormError
    return content


OwnFile = Annotated[bytes, Depends(_own_file)]
"""A file as the body, which a script sends with the session's secret."""


FIRST = PageRequest(None, 50)


async def _paging(cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> PageRequest:
    return PageRequest(cursor, limit)


Paging = Annotated[PageRequest, Depends(_paging)]


def local_path(url: str | None) -> str:
    """The next page: a path of these pages, else the first page."""
    if (
        url
        and re.fullmatch(r"/ui(/[^\\\x00-\x20\x7f]*)?(\?[^\\\x00-\x20\x7f]*)?", url)
        and "//" not in url.partition("?")[0]
    ):
        return url
    return HOME


def see_other(url: str, **parameters: str) -> RedirectResponse:
    """The answer to a form that was carried out."""
    return RedirectResponse(f"{url}?{urlencode(parameters)}" if parameters else url, 303)


def reason_of(fields: dict[str, str], is_needed: bool = False) -> str:
    """The reason of an act, as a form has it. Raises RefusedRequestError for none where it is needed."""
    reason = fields.get("reason", "").strip()[:1000]
    if is_needed and not reason:
        raise RefusedRequestError("Give a reason: it is kept with the version.")
    return reason


def said(error: ValidationError | IdgraphError) -> str:
    """The fault of a form, in words."""
    if isinstance(error, PreconditionError):
        return "Somebody changed it meanwhile. The page shows the stored version: compare it with yours, then save again."
    if isinstance(error, ValidationError):
        wrong = error.errors()[0]
        return f"{' '.join(map(str, wrong['loc'])).replace('_', ' ') or 'form'}: {wrong['msg']}"
    if isinstance(error, DocumentError):
        return "; ".join(f"line {each.line}: {each.message}" for each in error.problems)
    if isinstance(error, ProfileServiceError) and error.status is not None:
        # The reader of a page did not call a service.
        return error.detail or str(error)
    if isinstance(error, RefusedRequestError) and error.pointer:
        return f"{error.pointer}: {error.message}"
    return str(error)


def _sent(fields: dict[str, str]) -> str:
    """The fields of a form that are shown no more; a form with a text keeps them."""
    if "text" in fields:
        return ""
    names = [name for name in fields if name not in ("csrf", "etag", "act") and fields[name]]
    return " Yours: " + ", ".join(f"{re.sub('[-_]', ' ', name)} {fields[name]}" for name in names) + "."


def status_of(error: Exception) -> int:
    """The status of the page that says so."""
    if isinstance(error, ProfileServiceError):
        return error.status or 503
    return next((STATUS[base] for base in type(error).__mro__ if base in STATUS), 422)


def _curl(base: str, path: str, /, **parameters: Any) -> str:
    query = f"?{urlencode(parameters, doseq=True)}" if parameters else ""
    url = f"{base.rstrip('/')}{path}{query}".replace("'", "%27")
    return f"curl -s -H \"Authorization: Bearer $IDGRAPH_TOKEN\" '{url}'"
