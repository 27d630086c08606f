"""The frame of every page: its navigation, how values are written as text, and the templates."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import ChainableUndefined, Environment, FileSystemLoader
from markupsafe import Markup, escape

from idgraph.model.callers import SCOPES, Role, Scope
from idgraph.model.errors import first_few
from idgraph.model.text import duration, marked
from metadata_service.api.access import is_allowed
from metadata_service.storage.sessions import Session
from metadata_service.storage.tokens import TokenRecord
from metadata_service.ui.link_picture import link_picture

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
ROOT = "/ui"
HOME = "/ui/"
ATTRIBUTES = "/ui/attributes"
THEMES = ("auto", "light", "dark")

_TIME = re.compile(
    r"(?:(?:^|[._-])(?:at|time|timestamp|datetime|ts|date|seen|since|until|begin|end)|At|Time|Timestamp|Ts|Date|Seen|Since|Until)$"
)


class NavigationItem(NamedTuple):
    """A page of the navigation; `api` is the call that its reader must be allowed to make: a path, or a method and a path."""

    group: str
    title: str
    url: str
    icon: str
    api: str = ""
    scope: Scope | None = None
    """The scope that its reader needs in the profile service."""


NAVIGATION = (
    NavigationItem("", "Overview", HOME, "overview", "/v1/attributes"),
    NavigationItem("Catalogue", "Search Attributes", ATTRIBUTES, "search", "/v1/attributes"),
    NavigationItem("Catalogue", "Schema", "/ui/schema", "schema", "/v1/discovery-defaults"),
    NavigationItem("Catalogue", "Views", "/ui/views", "view", "/v1/views"),
    NavigationItem("Catalogue", "Segments", "/ui/segments", "segment", "/v1/segments"),
    NavigationItem("Catalogue", "Activities", "/ui/activities", "activity", "/v1/activities"),
    NavigationItem(
        "Catalogue", "Derived Attributes", "/ui/derived-attributes", "derived", "/v1/derived-attributes"
    ),
    NavigationItem("Catalogue", "Models", "/ui/models", "model", "/v1/models"),
    NavigationItem("Catalogue", "Triggers", "/ui/triggers", "trigger", "/v1/triggers"),
    NavigationItem("Mapping", "Mapping Specs", "/ui/specs", "spec", "/v1/specs"),
    NavigationItem("Mapping", "Generate Specs", "/ui/generate", "generate", "POST /v1/specs/generate"),
    NavigationItem("People", "Profiles", "/ui/profiles", "person"),
    NavigationItem("People", "Review", "/ui/review/violations", "warning", scope=Scope.LINKS),
    NavigationItem("People", "Identity Rules", "/ui/rules", "rules", "/v1/identity-rules"),
    NavigationItem("Operate", "Flows", "/ui/flows", "flow", scope=Scope.OPERATE),
    NavigationItem("Operate", "Dead Letters", "/ui/dead-letters", "letters", scope=Scope.OPERATE),
    NavigationItem("Operate", "Batch Operations", "/ui/jobs", "jobs"),
    NavigationItem("Govern", "Policy Changes", "/ui/policy-changes", "lock", "/v1/policy-changes"),
    NavigationItem("Govern", "Requests", "/ui/requests", "ask", "/v1/requests"),
    NavigationItem("Govern", "Users", "/ui/users", "people", "/v1/users"),
    NavigationItem("Govern", "Keys", "/ui/keys", "key", "/v1/keys"),
    NavigationItem("Govern", "Sandboxes", "/ui/sandboxes", "sandbox", "/v1/sandboxes"),
    NavigationItem("Govern", "Audit", "/ui/audit", "audit", "/v1/changes"),
)


def as_json(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value, ensure_ascii=False)


def as_time(moment: datetime | str) -> str:
    """In UTC. Answers of the profile service have moments as text."""
    moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return f"{moment.astimezone(UTC):%-d %b %Y %H:%M} UTC"


def is_time(path: str) -> bool:
    """Whether the name of an attribute says that its values are times."""
    return _TIME.search(path) is not None


def value_time(value: Any, path: str, form: str | None = None) -> str:
    """The time that a value of an attribute says in epoch milliseconds or seconds; empty for any other. `form` is that of
    metadata."""
    if form == "milliseconds" and type(value) in (int, float):
        moment = rfc3339(int(value))
        return as_time(moment) if moment.endswith("Z") else ""
    if type(value) is not int or not is_time(path):
        return ""
    for unit in (1000, 1):
        if 10**9 * unit <= value < 4 * 10**9 * unit:
            return as_time(datetime.fromtimestamp(value / unit, UTC))
    return ""


def ordinal_time(ordinal: int) -> str:
    """An ordinal that looks like epoch milliseconds as a time, any other as a number."""
    if 10**12 <= ordinal < 4 * 10**12:
        return as_time(datetime.fromtimestamp(ordinal / 1000, UTC))
    return str(ordinal)


def rfc3339(moment_ms: int) -> str:
    """Epoch milliseconds in UTC; a number that is no moment of the calendar as it is."""
    try:
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(moment_ms)
    return moment.isoformat(timespec="milliseconds" if moment_ms % 1000 else "seconds").replace("+00:00", "Z")


def in_words(name: str) -> str:
    """The name of a count as people read it: `drift/different` is `drift: different`."""
    what, _, part = name.partition("/")
    return what.replace("_", " ") + (f": {part}" if part else "")


def with_code(text: str) -> Markup:
    """Text with its parts between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def tint(source: str) -> int:
    """The tint of a source, one of three; the same one everywhere."""
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
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: marked(value) if type(value) is str else value,
    )
    for each in (
        as_json,
        as_time,
        duration,
        first_few,
        in_words,
        ordinal_time,
        rfc3339,
        tint,
        value_time,
        with_code,
    ):
        found.filters[each.__name__] = each
    # `as_typed` is text in a field, where it must stay what it is.
    found.filters.update(as_typed=escape, segment=lambda text: quote(text, safe=""))
    found.globals.update(static=static_url, link_picture=link_picture, gives=gives)
    return found


def gives(giver: TokenRecord, role: Role) -> bool:
    """Whether somebody may give a role on a page: nobody gives scopes that they have not."""
    return SCOPES.get(role, frozenset()) <= giver.all_scopes


def pages_of(session: Session) -> list[NavigationItem]:
    """The pages that a person may use, in their order."""
    return [each for each in NAVIGATION if _is_usable(each, session)]


def _is_usable(item: NavigationItem, session: Session) -> bool:
    method, _, path = item.api.rpartition(" ")
    is_allowed_here = not path or is_allowed(session.caller.role, method or "GET", path)
    return is_allowed_here and (item.scope is None or item.scope in session.caller.all_scopes)


def render(
    request: Request, template: str, session: Session | None, status: int = 200, **context: Any
) -> Response:
    """A page. The templates escape the context, and show nothing for what it lacks."""
    theme = request.cookies.get("idgraph-theme")
    query: dict[str, Any] = {name: request.query_params.getlist(name) for name in request.query_params}

    def with_query(**changed: Any) -> str:
        merged = {name: value for name, value in (query | changed).items() if value is not None}
        return f"?{urlencode(merged, doseq=True)}"

    made = _environment().get_template(template)
    html = made.render(
        **context,
        session=session,
        navigation=pages_of(session) if session else (),
        sandbox=request.app.state.service.settings.sandbox,
        here=request.url.path,
        address=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        query=query,
        with_query=with_query,
        theme=theme if theme in THEMES else "auto",
    )
    return HTMLResponse(html.encode("utf-8", "replace"), status)
