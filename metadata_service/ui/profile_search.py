"""Profiles: search by values and words in the search language, or by an identifier.

The typed text goes by POST. The address of a search has a token in its place, which the profile service seals and
opens, so that it can be kept and sent while no log and no history has a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from idgraph.client import ProfilesClient
from idgraph.model.attributes import DataType
from idgraph.model.errors import ProfileServiceError
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import leaves
from idgraph.model.query_language import parse_query
from metadata_service.specs.catalogue import active_specs
from metadata_service.storage.database import Database, Revision
from metadata_service.ui.frame import as_json
from metadata_service.ui.page import Cursor, OwnFields, OwnPage, SignedIn, see_other
from metadata_service.ui.profiles import LIST, address_of, failed_search, leaves_of, look_up

router = APIRouter()

PAGE = 25
MOST_COLUMNS = 5
MOST_FACETS = 4
MOST_TYPES = 20
"""Types of identifiers that a word alone is looked up as."""
SEARCH_SECONDS = 15.0
Sort = Annotated[str, Query(max_length=1025)]


@router.get(LIST)
def show(
    page: SignedIn,
    search: Cursor = None,
    q: Annotated[str | None, Query(max_length=1000, description="For links without values.")] = None,
    sort: Sort = "",
    cursor: Cursor = None,
) -> Response:
    """The search; with `search` or `q`, a page of what it finds."""
    if (search is None and q is None) or not page.can_ask:
        return page.render("profiles.html")
    return _results(page, {"search": search} if search is not None else {"q": q}, sort, cursor)


@router.post(LIST)
def find(page: SignedIn, fields: OwnFields) -> Response:
    """Look up or search the typed text: an identifier leads to its person, other text to a search."""
    typed, added = fields.get("q", "").strip(), fields.get("add", "")
    sort = {"sort": fields["sort"]} if fields.get("sort") else {}
    if not typed and not added:
        return see_other(LIST, q="", **sort)
    kind, colon, value = typed.partition(":")
    if colon and value and not added and not value[0].isspace():
        found = look_up(page, typed)
        if isinstance(found, Response):
            return found
        if found is not None:
            return see_other(f"{LIST}/{address_of(found, typed)}")
        if kind in _identifier_types(page.database, page.database.revision()):
            return page.render("profiles.html", 404, typed=typed, missing=typed)
    query = f"({typed}) {added}" if added and "OR" in typed.split() else f"{typed} {added}".strip()
    try:
        body = {"q": query, "limit": 1, "fields": []}
        found = page.ask("POST", "search", body=body, seconds=SEARCH_SECONDS)
    except ProfileServiceError as error:
        return failed_search(page, query, error)
    return see_other(LIST, search=found["search"], **sort)


def _results(page: OwnPage, body: dict[str, Any], sort: str, cursor: str | None) -> Response:
    typed = str(body.get("q") or "")
    request: dict[str, Any] = body | {"sort": sort or None, "limit": PAGE, "cursor": cursor}
    try:
        with page.profiles(SEARCH_SECONDS) as client:
            answer = client.call("POST", "search", body=request)
            typed = answer["q"] or ""
            count = client.count(typed)
            named = [] if cursor else named_profiles(client, typed, page.database)
            facets = _facets(client, typed, answer["items"])
    except ProfileServiceError as error:
        return failed_search(page, typed, error)
    # Of values nothing is asked: the service has read them.
    asked_for = leaves(parse_query([f"({typed})"] if typed else [], lambda _: DataType.STRING))
    columns = [sort.removeprefix("-"), *(each.path for each in asked_for), *facets]
    columns += _frequent([*named, *answer["items"]])
    named_ids = {each["id"] for each in named}
    profiles = named + [each for each in answer["items"] if each["id"] not in named_ids]
    return page.render(
        "profiles.html",
        typed=typed,
        page=answer,
        hits=[(each, address_of(each), dict(leaves_of(each["attributes"]))) for each in profiles],
        count=count,
        facets=facets,
        clause=_clause,
        sort=sort,
        named_count=len(named),
        columns=[each for each in dict.fromkeys(columns) if each][:MOST_COLUMNS],
        limit=PAGE,
    )


@lru_cache(maxsize=4)
def _identifier_types(database: Database, _revision: Revision) -> tuple[str, ...]:
    """The types of identifiers that active specs take, the most frequent first."""
    with database.read() as reading:
        specs = active_specs(reading)
    often = Counter(place.type for spec in specs for place in spec.identifiers)
    return tuple(kind for kind, _ in often.most_common(MOST_TYPES))


def named_profiles(client: ProfilesClient, typed: str, database: Database) -> list[dict[str, Any]]:
    """The profiles of an identifier; of a word alone those of which it is an identifier of any known type."""
    if not typed or any(each.isspace() or each in '=<>"()*' for each in typed):
        return []
    kind, colon, value = typed.partition(":")
    types = _identifier_types(database, database.revision()) if not colon else ()
    names = [typed] if kind and value else [str(Identifier(each, typed)) for each in types]
    found = list(client.lookups(names)) if names else []
    return list({each["id"]: dict(each) for each in found if each is not None}.values())


def _frequent(items: Sequence[dict[str, Any]]) -> list[str]:
    """The attributes that most of these profiles have as plain values."""
    plain = (
        path
        for item in items
        for path, value in leaves_of(item["attributes"])
        if isinstance(value, str | int | float)
    )
    return [path for path, _ in Counter(plain).most_common(MOST_COLUMNS)]


def _facets(client: ProfilesClient, typed: str, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By attribute, of those whose values most of these profiles share, its most frequent values."""
    often: dict[str, Counter[Any]] = {}
    for item in items:
        for path, value in leaves_of(item["attributes"]):
            if isinstance(value, str | bool):
                often.setdefault(path, Counter())[value] += 1
    shared = [path for path, values in often.items() if values.most_common(1)[0][1] > 1]
    shared.sort(key=lambda path: (-often[path].total() / len(often[path]), path))
    chosen = shared[:MOST_FACETS]
    if not chosen:
        return {}
    try:
        body = {"q": typed or None, "paths": chosen, "limit": 6}
        found = client.call("POST", "search", "facets", body=body)["facets"]
    except ProfileServiceError as error:
        if error.status != 400:
            raise
        return {}  # Policy protects one by now.
    return {path: found[path] for path in chosen if found[path]}


def _clause(path: str, value: Any) -> str:
    """The clause for profiles with this value; empty for a text that no clause can hold."""
    if '"' in f"{path}{value}":
        return ""
    name = f'"{path}"' if any(each in "=<>:()" or each.isspace() for each in path) else path
    return f'{name}="{value}"' if isinstance(value, str) else f"{name}={as_json(value)}"
