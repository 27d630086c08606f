"""What every page has: its frame, who looks at it, what was posted, and how values are written as text."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from idgraph.model.callers import Scope
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.access import is_allowed, require_right
from metadata_service.storage.sessions import Session, Sessions
from metadata_service.storage.tokens import Role

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
ROOT = "/ui"
HOME = "/ui/"
ATTRIBUTES = "/ui/attributes"
SIGN_IN = "/ui/sign-in"
MOST_FORM_BYTES = 2 << 20
THEMES = ("auto", "light", "dark")

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


class NotSignedInError(Exception):
    """The page needs a session."""


class StaleFormError(Exception):
    """A form was sent by another site, or belongs to a session that ended."""


class NavigationItem(NamedTuple):
    """A page of the navigation; `api` is the call that its reader must be allowed to make: a path, or a method and a path."""

    title: str
    url: str
    icon: str
    api: str
    scope: Scope | None = None
    """What the profile service must let its reader do."""


NAVIGATION = (
    ("", (NavigationItem("Overview", HOME, "overview", "/v1/attributes"),)),
    (
        "Catalogue",
        (
            NavigationItem("Search Attributes", ATTRIBUTES, "search", "/v1/attributes"),
            NavigationItem("Schema", "/ui/schema", "schema", "/v1/discovery-defaults"),
            NavigationItem("Views", "/ui/views", "view", "/v1/views"),
            NavigationItem("Segments", "/ui/segments", "segment", "/v1/segments"),
        ),
    ),
    (
        "Mapping",
        (
            NavigationItem("Mapping Specs", "/ui/specs", "spec", "/v1/specs"),
            NavigationItem("Generate Specs", "/ui/generate", "generate", "POST /v1/specs/generate"),
        ),
    ),
    (
        "People",
        (
            NavigationItem("Profiles", "/ui/profiles", "person", ""),
            NavigationItem("Review", "/ui/review/violations", "warning", "", Scope.LINKS),
            NavigationItem("Identity Rules", "/ui/rules", "rules", "/v1/identity-rules"),
        ),
    ),
    (
        "Operate",
        (
            NavigationItem("Flows", "/ui/flows", "flow", "", Scope.OPERATE),
            NavigationItem("Dead Letters", "/ui/dead-letters", "letters", "", Scope.OPERATE),
            NavigationItem("Batch Operations", "/ui/jobs", "jobs", ""),
        ),
    ),
    (
        "Govern",
        (
            NavigationItem("Policy Changes", "/ui/policy-changes", "lock", "/v1/policy-changes"),
            NavigationItem("Requests", "/ui/requests", "ask", "/v1/requests"),
            NavigationItem("Users", "/ui/users", "people", "/v1/users"),
            NavigationItem("Keys", "/ui/keys", "key", "/v1/keys"),
            NavigationItem("Sandboxes", "/ui/sandboxes", "sandbox", "/v1/sandboxes"),
            NavigationItem("Audit", "/ui/audit", "audit", "/v1/changes"),
        ),
    ),
)


def visible(text: str) -> str:
    """Characters that are not seen, or that turn text around, as marks."""
    return _UNSEEN.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", text)


def as_typed(text: str) -> Markup:
    """Text in a field, where it must stay what it is."""
    return escape(text)


def as_json(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value, ensure_ascii=False)


def as_time(moment: datetime | str) -> str:
    """In UTC. Answers of the profile service have moments as text."""
    moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return f"{moment.astimezone(UTC):%-d %b %Y %H:%M}"


def ordinal_time(ordinal: int) -> str:
    """An ordinal that looks like epoch milliseconds as a time, any other as a number."""
    if 10**12 <= ordinal < 4 * 10**12:
        return as_time(datetime.fromtimestamp(ordinal / 1000, UTC))
    return str(ordinal)


def duration(seconds: float) -> str:
    """A length of time as people say it: `40 s`, `5 min`, `3 h 20 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def in_words(name: str) -> str:
    """The name of a count as people read it: `drift/different` is `drift: different`."""
    what, _, part = name.partition("/")
    return what.replace("_", " ") + (f": {part}" if part else "")


def mark(source: str) -> str:
    """The two characters that stand for a source."""
    return (source[:2] or "?").upper()


def tint(source: str) -> int:
    """Which of the three tints a source has; the same one everywhere."""
    return hashlib.sha256(source.encode("utf-8", "replace")).digest()[0] % 3 + 1


@cache
def static_url(name: str) -> str:
    """The address of a file under `static`, which changes with it."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:16]
    return f"{ROOT}/static/{name}?v={digest}"


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    made: tuple[Callable[..., Any], ...] = (
        as_json,
        as_time,
        as_typed,
        duration,
        in_words,
        mark,
        ordinal_time,
        tint,
    )
    found.filters.update({each.__name__: each for each in made}, segment=lambda text: quote(text, safe=""))
    found.globals.update(static=static_url)
    return found


def sessions_of(request: Request) -> Sessions:
    """The sessions of the application."""
    return cast(Sessions, request.app.state.sessions)


def cookie_name(request: Request) -> str:
    """By https no other host and no plain connection can set the cookie; by plain HTTP, on this machine, browsers refuse
    that name."""
    return "__Host-idgraph-session" if request.url.scheme == "https" else "idgraph-session"


def find_session(request: Request, is_use: bool = False) -> Session | None:
    """Whose request this is; what is a use keeps the session."""
    session_id = request.cookies.get(cookie_name(request))
    return sessions_of(request).find(session_id, is_use) if session_id else None


def _signed_in(request: Request) -> Session:
    session = find_session(request, is_use=True)
    if session is None:
        raise NotSignedInError
    return session


def _still_signed_in(request: Request) -> Session:
    session = find_session(request)
    if session is None:
        raise NotSignedInError
    return session


SignedIn = Annotated[Session, Depends(_signed_in)]
Watching = Annotated[Session, Depends(_still_signed_in)]
"""Of a call that a page makes by itself: it does not keep the session."""


def _following(request: Request) -> Session:
    return (_still_signed_in if "hx-request" in request.headers else _signed_in)(request)


Polled = Annotated[Session, Depends(_following)]
"""Of a page that asks for itself again and again: only where a person opens it, it keeps the session."""


async def posted(request: Request) -> dict[str, str]:
    """The fields of a form of this site. Raises StaleFormError, RefusedRequestError."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or (
        origin and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise StaleFormError
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_FORM_BYTES:
            raise RefusedRequestError(f"a form has at most {MOST_FORM_BYTES:,} bytes")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=300))
    except ValueError:
        raise RefusedRequestError("the form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields.items()}


Fields = Annotated[dict[str, str], Depends(posted)]


def _own_fields(request: Request, session: SignedIn, fields: Fields) -> dict[str, str]:
    given = request.headers.get("x-csrf-token") or fields.get("csrf", "")
    if not hmac.compare_digest(given.encode(), session.csrf.encode()):
        raise StaleFormError
    return fields


OwnFields = Annotated[dict[str, str], Depends(_own_fields)]
"""The fields of a form that this session was given."""


def require(session: Session, method: str, path: str) -> None:
    """The rights of a page are those of the call behind it. Raises ForbiddenError."""
    require_right(session.caller, method, path)


def may(session: Session, method: str, path: str) -> bool:
    """Whether `require` lets pass."""
    return is_allowed(session.caller.role, method, path)


def pages_of(session: Session) -> list[NavigationItem]:
    """The pages that a person may use, in their order."""
    return [each for _, items in NAVIGATION for each in items if _is_usable(each, session)]


def _is_usable(item: NavigationItem, session: Session) -> bool:
    method, _, path = item.api.rpartition(" ")
    is_allowed_here = not path or may(session, method or "GET", path)
    return is_allowed_here and (item.scope is None or item.scope in session.caller.caller("", None).scopes)


def local_path(url: str | None) -> str:
    """Where to go on: a path of these pages, else the first page."""
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


def render(
    request: Request, template: str, session: Session | None, status: int = 200, **context: Any
) -> Response:
    """A page. Everything in the context is text; the templates escape it."""
    theme = request.cookies.get("idgraph-theme", "auto")
    navigation: list[tuple[str, Sequence[NavigationItem]]] = []
    if session is not None:
        for group, items in NAVIGATION:
            shown = [each for each in items if _is_usable(each, session)]
            navigation += [(group, shown)] if shown else []
    query = {name: request.query_params.getlist(name) for name in request.query_params}
    made = (
        _environment()
        .get_template(template)
        .render(
            **{"title": "", "curl": None, "is_rail": False} | context,
            session=session,
            navigation=navigation,
            sandbox=request.app.state.service.settings.sandbox,
            here=request.url.path,
            address=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            query=query,
            with_query=lambda **changed: "?" + urlencode(_merged(query, changed), doseq=True),
            theme=theme if theme in THEMES else "auto",
        )
    )
    return HTMLResponse(made.encode("utf-8", "replace"), status)


def _merged(query: Mapping[str, list[str]], changed: Mapping[str, str | None]) -> dict[str, list[str]]:
    merged = {name: values for name, values in query.items() if name not in changed}
    return merged | {name: [value] for name, value in changed.items() if value is not None}


def curl(base: str, path: str, **parameters: Any) -> str:
    """The call behind a page, without anybody's token."""
    query = f"?{urlencode(parameters, doseq=True)}" if parameters else ""
    url = f"{base.rstrip('/')}{path}{query}".replace("'", "%27")
    return f"curl -s -H \"Authorization: Bearer $IDGRAPH_TOKEN\" '{url}'"


def curl_post(base: str, path: str, body: dict[str, Any]) -> str:
    """The same for a call with a body."""
    content = shlex.quote(json.dumps({name: value for name, value in body.items() if value is not None}))
    return f"{curl(base, path)} -H 'Content-Type: application/json' -d {content}"


def reads_profiles_only(session: Session) -> bool:
    """Whether the person has no page of the metadata service."""
    return session.caller.role is Role.PROFILES
