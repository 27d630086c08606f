"""The pages as an ASGI application beside the REST interface: own sign-in, own errors, and a strict content policy."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from idgraph.model.callers import FROM_LEAST, SCOPES, Scope
from idgraph.model.errors import IdgraphError, ProfileServiceError
from idgraph.web.openid import OpenId
from idgraph.web.path_values import keep_slashes
from metadata_service.api.access import MissingRoleError
from metadata_service.api.database_problems import log_database_error
from metadata_service.api.service import MetadataService
from metadata_service.storage.sessions import SignInSessions
from metadata_service.ui import (
    attributes,
    audit,
    dead_letters,
    deciding,
    definitions,
    flows,
    generate,
    jobs,
    models,
    overview,
    profile_search,
    profiles,
    requests,
    review,
    rights,
    rules,
    sandboxes,
    schema,
    signing_in,
    spec_effect,
    specs,
    users,
)
from metadata_service.ui.frame import ROOT, STATIC, render
from metadata_service.ui.page import (
    SIGN_IN,
    NotSignedInError,
    ProfileSource,
    StaleFormError,
    find_session,
    said,
    status_of,
)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
REFUSED = (400, 403, 404, 409, 410, 412, 422)
"""Answers that say what is wrong: a form is shown again with it, where its page says how."""


class BesidePages:
    """ASGI middleware: / and addresses below /ui are the pages, all others the REST interface."""

    def __init__(self, app: ASGIApp, pages: ASGIApp) -> None:
        self._app = app
        self._pages = pages

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] != "http" or not (path in ("/", ROOT) or path.startswith(ROOT + "/")):
            return await self._app(scope, receive, send)
        is_versioned = path.startswith(f"{ROOT}/static/") and scope["query_string"].startswith(b"v=")

        async def marking(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                kept = is_versioned and message["status"] == 200
                headers["Cache-Control"] = "public, max-age=31536000, immutable" if kept else "no-store"
            await send(message)

        keep_slashes(scope)
        return await self._pages(scope, receive, marking)


PAGES = (
    *(signing_in, overview, attributes, specs, spec_effect, generate, audit),
    *(
        profile_search,
        profiles,
        deciding,
        definitions,
        models,
        rights,
        review,
        rules,
        sandboxes,
        schema,
        jobs,
    ),
    *(dead_letters, flows, users, requests),
)


def create_pages(
    service: MetadataService, profile_source: ProfileSource | None, openid: OpenId | None = None
) -> FastAPI:
    """The pages over a service."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.sessions = SignInSessions(service.database)
    app.state.profile_source = profile_source
    app.state.openid = openid
    for module in PAGES:
        app.router.routes.extend(module.router.routes)
    app.mount(f"{ROOT}/static", StaticFiles(directory=STATIC))
    _answer_errors(app)
    return app


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(NotSignedInError)
    def sign_in(request: Request, _error: NotSignedInError) -> Response:
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        target = f"{SIGN_IN}?next={quote(address if request.method == 'GET' else ROOT, safe='')}"
        if "hx-request" in request.headers:
            return Response(status_code=401, headers={"HX-Redirect": SIGN_IN})
        return Response(status_code=303, headers={"Location": target})

    @app.exception_handler(StaleFormError)
    def stale(request: Request, _error: StaleFormError) -> Response:
        return _error_page(request, 403, is_stale=True)

    @app.exception_handler(IdgraphError)
    @app.exception_handler(ValidationError)
    def failed(request: Request, error: IdgraphError | ValidationError) -> Response:
        status, again = status_of(error), getattr(request.state, "again", None)
        if again is not None and status in REFUSED:
            request.state.again = None
            try:
                return cast(Response, again(422 if status == 400 else status, said(error)))
            except IdgraphError as other:
                return failed(request, other)
        if isinstance(error, ValidationError):
            raise error
        is_of_profiles = isinstance(error, ProfileServiceError)
        code = 503 if is_of_profiles and status not in REFUSED else status
        return _error_page(
            request, code, problem=str(error), is_of_profiles=is_of_profiles, **_missing(error)
        )

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        return _error_page(request, 422, unread=sorted({str(wrong["loc"][-1]) for wrong in error.errors()}))

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        return _error_page(request, error.status_code, problem=error.detail, is_address=True)

    @app.exception_handler(SQLAlchemyError)
    def away(request: Request, error: SQLAlchemyError) -> Response:
        log_database_error(error)
        return render(request, "error.html", None, 503, code=503)

    @app.exception_handler(Exception)
    def crashed(request: Request, _error: Exception) -> Response:
        response = render(request, "error.html", None, 500, code=500)
        response.headers.update(HEADERS)
        return response


def _missing(error: Exception) -> dict[str, Any]:
    """The right that somebody lacks, as far as it is known, and the least role that has it."""
    if isinstance(error, MissingRoleError):
        return {"least": error.least}
    if isinstance(error, ProfileServiceError) and error.status == 403:
        scope = next((each for each in Scope if f"the scope {each}" in str(error)), None)
        least = next((each for each in FROM_LEAST if scope in SCOPES.get(each, ())), None)
        return {"scope": scope, "least": least}
    return {}


def _error_page(request: Request, status: int, **context: Any) -> Response:
    return render(request, "error.html", find_session(request), status, code=status, **context)
