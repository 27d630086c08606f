"""Signing in and out, and the choice of colours."""

from __future__ import annotations

import secrets
from asyncio import wrap_future
from typing import Any, cast
from urllib.parse import quote, unquote

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from idgraph.web.limits import address_of
from idgraph.web.openid import NoRightsError, OpenId
from idgraph.web.refusals import ClashError, NotReadyError, RateError, UnknownSubjectError
from metadata_service.storage.database import Database
from metadata_service.storage.passwords import submit_sign_in
from metadata_service.storage.sessions import LONGEST
from metadata_service.storage.users import admit
from metadata_service.ui.frame import THEMES, render
from metadata_service.ui.page import (
    SIGN_IN,
    Fields,
    OwnFields,
    cookie_name,
    find_session,
    local_path,
    see_other,
    sessions_of,
)

router = APIRouter()


@router.get(SIGN_IN)
def show(request: Request, next: str = "", code: str = "") -> Response:  # noqa: A002 - a name in the URL
    """The form; with a code, the button that uses it up: a preview of the link must not."""
    return sign_in_page(request, next, code=code)


def sign_in_page(request: Request, goes_on: str | None, status: int = 200, **context: Any) -> Response:
    """The form, also with what was wrong: in a `problem`, or of what, in `wrong`."""
    known = {"next": local_path(goes_on), "openid": request.app.state.openid}
    return render(request, "sign_in.html", None, status, **known, **context)


@router.get(SIGN_IN + "/sso")
def begin_sso(request: Request, next: str = "") -> Response:  # noqa: A002 - a name in the URL
    """To the issuer. The browser keeps what its answer is compared with."""
    openid: OpenId | None = request.app.state.openid
    if openid is None:
        raise UnknownSubjectError("single sign-on is not configured: [oidc] in idgraph.toml")
    secret = secrets.token_urlsafe(32)
    try:
        response = see_other(openid.authorization_url(secret, _redirect(request, openid)))
    except NotReadyError as error:
        return sign_in_page(request, next, 503, problem=f"{error}.")
    _keep(request, response, _sso_cookie(request), f"{secret} {quote(local_path(next), safe='')}", 600)
    return response


@router.get(SIGN_IN + "/callback")
def end_sso(request: Request) -> Response:
    """Back from the issuer."""
    openid: OpenId | None = request.app.state.openid
    secret, _, goes_on = request.cookies.get(_sso_cookie(request), "").partition(" ")
    context, user = {"wrong": "sso"}, None
    tries, address = database_of(request).tries, address_of(request.client)
    try:
        tries.take_address(address)
        identity = openid and openid.signed_in(secret, request.query_params, _redirect(request, openid))
        if identity:
            user = admit(request.app.state.service.database, identity, is_signing_in=True)
            context = {"wrong": "disabled"}
            tries.give_back_address(address)
    except RateError as error:
        return _slower(error)
    except (NoRightsError, NotReadyError, ClashError) as error:
        context = {"problem": f"{error}."}
    if user is None:
        response = sign_in_page(request, unquote(goes_on), 403, **context)
    else:
        response = go_in(request, sessions_of(request).begin_for(user.id), unquote(goes_on))
    response.delete_cookie(_sso_cookie(request), secure=request.url.scheme == "https", httponly=True)
    return response


def _sso_cookie(request: Request) -> str:
    return f"{cookie_name(request)}-sso"


def _redirect(request: Request, openid: OpenId) -> str:
    return openid.config.redirect_url or f"{request.url.scheme}://{request.url.netloc}{SIGN_IN}/callback"


@router.post(SIGN_IN)
async def sign_in(request: Request, fields: Fields) -> Response:
    """Begin a session, with name and password, a token, or the code of a link; one that there was ends."""
    sessions, goes_on = sessions_of(request), fields.get("next")
    code, token, name = (fields.get(each, "").strip() for each in ("code", "token", "name"))
    wrong = "link" if code else "token" if token else "name"
    tries, address = database_of(request).tries, address_of(request.client)
    begun = None
    try:
        if not (code or token):
            user = await wrap_future(
                submit_sign_in(database_of(request), name, fields.get("password", ""), address)
            )
            begun = None if user is None else await run_in_threadpool(sessions.begin_for, user)
        else:
            tries.take_address(address)
            begin = sessions.begin_by_code if code else sessions.begin
            begun = await run_in_threadpool(begin, code or token)
            if begun is not None:
                tries.give_back_address(address)
    except RateError as error:
        return _slower(error)
    if begun is None:
        return await run_in_threadpool(sign_in_page, request, goes_on, 403, wrong=wrong, name=name[:100])
    return await run_in_threadpool(go_in, request, begun, goes_on)


def _slower(error: RateError) -> Response:
    # A text, no page: whoever floods costs as little as can be.
    headers = {"Retry-After": str(error.reset_seconds)}
    return Response(f"Sign in: {error}.\n", 429, headers, media_type="text/plain")


def database_of(request: Request) -> Database:
    """The database of the application."""
    return cast(Database, request.app.state.service.database)


def go_in(request: Request, begun: str, goes_on: str | None) -> Response:
    """To the page that was asked for, with a new session; one that there was ends."""
    sessions_of(request).end(request.cookies.get(cookie_name(request), ""))
    response = see_other(local_path(goes_on))
    _keep(request, response, cookie_name(request), begun, int(LONGEST.total_seconds()))
    return response


def _keep(request: Request, response: Response, name: str, value: str, seconds: int) -> None:
    """Give the browser a cookie, which no script reads."""
    is_secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=seconds, secure=is_secure, httponly=True, samesite="lax")


@router.post("/ui/sign-out")
def sign_out(request: Request, fields: OwnFields) -> Response:  # noqa: ARG001 - it is checked
    """End the session."""
    sessions_of(request).end(request.cookies.get(cookie_name(request), ""))
    response = see_other(SIGN_IN)
    response.delete_cookie(cookie_name(request))
    response.headers["Clear-Site-Data"] = '"cache", "storage"'
    return response


@router.post("/ui/theme")
def choose_theme(request: Request, fields: Fields) -> Response:
    """Dark, light, or as the system is."""
    chosen = fields.get("theme", "")
    goes_on = local_path(fields.get("next"))
    response = see_other(goes_on if find_session(request) else SIGN_IN)
    if chosen in THEMES:
        _keep(request, response, "idgraph-theme", chosen, 365 * 86400)
    return response
