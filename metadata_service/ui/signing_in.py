"""Signing in and out, and the choice of colours."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from metadata_service.storage.sessions import LONGEST
from metadata_service.ui.page import (
    HOME,
    ROOT,
    SIGN_IN,
    THEMES,
    Fields,
    OwnFields,
    SignedIn,
    cookie_name,
    find_session,
    local_path,
    reads_profiles_only,
    render,
    see_other,
    sessions_of,
)

router = APIRouter()

WRONG_TOKEN = "No token like this is in use. It may be mistyped, revoked or expired."  # noqa: S105 - a message
WRONG_LINK = "This link was used already, or is older than ten minutes."


def keep_session(request: Request, response: Response, session_id: str) -> Response:
    """Give the browser its session."""
    response.set_cookie(
        cookie_name(request),
        session_id,
        max_age=int(LONGEST.total_seconds()),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


@router.get(ROOT)
@router.get(ROOT + "/")
def first_page(session: SignedIn) -> Response:
    """Where a person begins."""
    return see_other("/ui/profiles" if reads_profiles_only(session) else HOME)


@router.get(SIGN_IN)
def show(request: Request, next: str = "", code: str = "") -> Response:  # noqa: A002 - a name in the URL
    """The form; with a code, the button that uses it up: a preview of the link must not."""
    return render(
        request, "sign_in.html", None, title="Sign in", next=local_path(next), code=code, problem=""
    )


@router.post(SIGN_IN)
def sign_in(request: Request, fields: Fields) -> Response:
    """Begin a session, with a token or with the code of a link; one that there was ends."""
    sessions, code = sessions_of(request), fields.get("code", "")
    token = fields.get("token", "").strip()
    begun = sessions.begin_by_code(code) if code else sessions.begin(token) if token else None
    goes_on = local_path(fields.get("next"))
    if begun is None:
        problem = WRONG_LINK if code else WRONG_TOKEN
        return render(
            request, "sign_in.html", None, 403, title="Sign in", next=goes_on, code="", problem=problem
        )
    sessions.end(request.cookies.get(cookie_name(request), ""))
    return keep_session(request, see_other(ROOT if goes_on == HOME else goes_on), begun)


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
        response.set_cookie(
            "idgraph-theme",
            chosen,
            max_age=365 * 86400,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
    return response
