"""Views, Segments, Activities, Derived Attributes and Triggers: the list, and one with its text, what it gives for the profiles
that a person sees, and its versions. And the ledger of a trigger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ValidationError

from idgraph.model import queries
from idgraph.model.behaviour import DerivedDocument
from idgraph.model.documents import NAME_PATTERN
from idgraph.model.errors import ProfileServiceError, SpecError, TransformError
from idgraph.model.triggers import Outcome, TriggerDocument
from idgraph.model.views import SegmentDocument, ViewDocument
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import RefusedRequestError, UnknownSubjectError
from metadata_service.api.routes.documents import Name, put_document
from metadata_service.attributes.lineage import readers_of, warnings_of
from metadata_service.behaviour import ACTIVITIES, DERIVED_ATTRIBUTES
from metadata_service.definitions import SEGMENTS, VIEWS
from metadata_service.documents.problems import DocumentError, JsonFile, Problem, model_problems
from metadata_service.documents.writing import difference, json_lines, spec_text
from metadata_service.kinds import KINDS
from metadata_service.models import list_models
from metadata_service.storage.versions import VersionedDocuments
from metadata_service.triggers import TRIGGERS
from metadata_service.ui.forms import FormMember, at_their_places, filled, form_of
from metadata_service.ui.page import (
    START_SECONDS,
    Cursor,
    Number,
    OwnFields,
    OwnPage,
    Paging,
    SignedIn,
    Text,
    reason_of,
    said,
    see_other,
)

router = APIRouter()


SHOWN = 50
EXAMPLES = 10
CROSSINGS = 100
"""The newest so many of a trigger are counted in the list."""
CROSSINGS_SHOWN = 200


class Shelf(NamedTuple):
    """A kind of definition on its pages: what people call it, what it is for, and the texts that a new one begins with, by what
    it is made of. In these texts `$NAME` is its name, `$ACTIVITY`, `$SEGMENT` and `$DIGEST` (of a model) one that is known."""

    documents: VersionedDocuments[Any, Any]
    title: str
    one: str
    lead: str
    beginnings: Mapping[str, Mapping[str, Any]]

    def form(self, text: str) -> tuple[FormMember, ...]:
        """The inputs of a text; none where it is no JSON object."""
        try:
            content = JsonFile.of_text(text).content
        except DocumentError:
            return ()
        if not isinstance(content, dict):
            return ()
        absent = {each for each in (*self.beginnings, "status") if each not in content}
        return form_of(self.documents.stated, content, {"name", *absent})


_MESSAGE = {"expires": "1d", "limits": [{"most": 1, "per": "7d"}], "webhook": "crm"}
_OF_ACTIVITY = {"activity": "$ACTIVITY"}
SHELVES = {
    each.documents.path: each
    for each in (
        Shelf(
            VIEWS,
            "Views",
            "view",
            "A view is a named, versioned selection and renaming of attributes. Product teams name it in look-ups and searches.",
            {"": {"attributes": {"last": "activity.lastEvent"}}},
        ),
        Shelf(
            SEGMENTS,
            "Segments",
            "segment",
            "A segment is a named, versioned search. Its members enter and leave as profiles change.",
            {"": {"q": "activity.lastEvent=*"}},
        ),
        Shelf(
            ACTIVITIES,
            "Activities",
            "activity",
            "An activity is a named kind of event. Each event of it leaves an entry in the timeline of a person: its time, source, "
            "event id, and the fields that the activity keeps.",
            {"": {"source": "*", "event_type": "*", "fields": {}, "keep": "400d"}},
        ),
        Shelf(
            DERIVED_ATTRIBUTES,
            "Derived Attributes",
            "derived attribute",
            "The value of a derived attribute is computed from a person's timelines and attributes as of the moment that "
            "somebody asks. No spec writes it. It is looked up, searched, sorted and exported like any attribute.",
            {
                "window": {
                    "path": "behaviour.$NAME",
                    "window": {**_OF_ACTIVITY, "function": "count", "over": "30d"},
                },
                "sessions": {
                    "path": "behaviour.$NAME",
                    "sessions": {**_OF_ACTIVITY, "gap": "30m", "over": "30d"},
                },
                "pattern": {
                    "path": "behaviour.$NAME",
                    "pattern": {
                        "activities": ["$ACTIVITY"],
                        "pattern": "A B+",
                        "define": {"A": "activity == '$ACTIVITY'", "B": "activity == '$ACTIVITY'"},
                        "within": "1d",
                    },
                },
                "expression": {"path": "behaviour.$NAME", "expression": "activity.lastEvent"},
                "model": {
                    "path": "behaviour.$NAME",
                    "model": {
                        "digest": "$DIGEST",
                        "inputs": [{"path": "activity.purchase.total", "default": 0}],
                    },
                },
            },
        ),
        Shelf(
            TRIGGERS,
            "Triggers",
            "trigger",
            "A trigger sends a message when a person enters or leaves a segment, begins or ceases to meet a search, or has "
            "another value of an attribute: within limits, and never for old events. Its ledger says for each crossing what "
            "came of it.",
            {
                "segment": {"when": {"segment": "$SEGMENT", "on": "entered"}, **_MESSAGE},
                "search": {"when": {"q": "activity.lastSeenAt<now-30d", "on": "becomes_true"}, **_MESSAGE},
                "attribute": {"when": {"attribute": "activity.lastEvent", "on": "changes"}, **_MESSAGE},
            },
        ),
    )
}


def _shelf(request: Request) -> Shelf:
    return SHELVES[request.url.path.split("/")[2].removesuffix("-new")]


Shown = Annotated[Shelf, Depends(_shelf)]


def begin(
    page: SignedIn, shelf: Shown, name: Annotated[str, Query(pattern=NAME_PATTERN)], of: Text = ""
) -> Response:
    """A draft of a name; of one that is known, its text."""
    page.require("POST", f"/v1/{shelf.documents.path}/check")
    return see_other(f"/ui/{shelf.documents.path}/{name}", new="true", **({"of": of} if of else {}))


def list_definitions(
    page: SignedIn, shelf: Shown, paging: Paging, q: Text = "", sort: Literal["name", "-name"] = "name"
) -> Response:
    """By name."""
    plural = shelf.documents.path
    page.require("GET", f"/v1/{plural}")
    with page.database.read() as reading:
        found = shelf.documents.list(reading, paging, q, sort == "-name")
    of_late = _of_late(page, (each.name for each in found.items)) if shelf.documents is TRIGGERS else None
    return page.render(
        "definitions.html", plural=plural, shelf=shelf, page=found, q=q, sort=sort, of_late=of_late
    )


def _of_late(page: OwnPage, names: Iterable[str]) -> dict[str, Counter[str]]:
    """By trigger, how often each outcome is among the newest crossings; of those that the person sees."""
    found: dict[str, Counter[str]] = {}
    try:
        with page.profiles() as client:
            known = {each["name"] for each in client.call("GET", "triggers")["items"]}
            for name in known.intersection(names):
                lines = client.call("GET", "triggers", name, "ledger", params={"limit": CROSSINGS})["items"]
                found[name] = Counter(each["outcome"] for each in lines)
    except ProfileServiceError:
        return found
    return found


@router.get("/ui/triggers/{name}/ledger")
def show_ledger(
    page: SignedIn, name: Name, outcome: Outcome | Literal[""] = "", cursor: Cursor = None
) -> Response:
    """The newest crossings of a trigger, or those behind a cursor, with what came of each."""
    page.require("GET", f"/v1/{TRIGGERS.path}/{name}")
    with page.database.read() as reading:
        trigger = TRIGGERS.get(reading, name)
    found: dict[str, Any] = {"items": [], "next": None}
    problem = ""
    asked = {"limit": CROSSINGS_SHOWN} | ({"cursor": cursor} if cursor else {})
    try:
        found = page.ask("GET", "triggers", name, "ledger", params=asked)
    except ProfileServiceError as error:
        problem = said(error)
    lines = found["items"]
    counts = Counter(each["outcome"] for each in lines)
    return page.render(
        "ledger.html",
        trigger=trigger,
        page=found,
        lines=[each for each in lines if outcome in ("", each["outcome"])],
        counts=[(each, counts[each]) for each in get_args(Outcome)],
        outcome=outcome,
        problem=problem,
        asked=asked,
    )


def show(
    page: SignedIn,
    shelf: Shown,
    name: Name,
    version: Number = None,
    new: bool = False,
    saved: bool = False,
    of: Text = "",
    written: Literal["fields", "json"] = "fields",
) -> Response:
    """The latest version, an older one to begin with again, or with `new` a draft of a name, made `of` one of `beginnings`."""
    page.require("GET", f"/v1/{shelf.documents.path}/{name}")
    text = None
    with page.database.read() as reading:
        if version is not None:
            text = _text(shelf.documents.at(reading, version, name).document)
        elif not new:
            shelf.documents.get(reading, name)
    return _page(page, shelf, name, text, saved=saved, of=of, written=written)


def act(page: SignedIn, shelf: Shown, name: Name, fields: OwnFields) -> Response:
    """Check a draft, try it on profiles, publish it, or retire the name, by `act`."""
    plural = shelf.documents.path
    page.require("POST", f"/v1/{plural}/check")
    text, deed = fields.get("text", ""), fields.get("act")
    kept: dict[str, Any] = {each: fields.get(each, "").strip() for each in ("reason", "person", "etag")}
    kept["written"] = fields.get("written", "json")
    if kept["written"] == "fields" and shelf.form(text):
        text = json_lines(filled(shelf.documents.stated, json.loads(text), fields))
    if deed in ("fields", "json"):
        kept["written"] = deed
    try:
        stated, first, kept["warnings"] = _read(page, shelf, name, text)
    except DocumentError as error:
        return _page(page, shelf, name, text, 422, problems=error.problems, **kept)
    if deed not in ("publish", "retire"):
        tried = _tried(page, first, kept["person"]) if deed == "try" else None
        return _page(page, shelf, name, text, is_checked=True, tried=tried, **kept)
    page.require("PUT", f"/v1/{plural}/{name}")
    page.on_refusal(_page, shelf, name, text, **kept)
    if deed == "retire":
        stated = stated.model_copy(update={"status": "retired"})
    # A draft of a new name has no version that it was begun from.
    known = fields.get("etag")
    check = precondition(known) if known else precondition(None, "*")
    reason = reason_of(fields, is_needed=True)
    put_document(shelf.documents, stated, page.service, page.caller.name, check, reason)
    return see_other(f"/ui/{plural}/{name}", saved="true")


for _plural in SHELVES:
    router.get(f"/ui/{_plural}-new")(begin)
    router.get(f"/ui/{_plural}")(list_definitions)
    router.get(f"/ui/{_plural}/{{name}}")(show)
    router.post(f"/ui/{_plural}/{{name}}")(act)


def _read(page: OwnPage, shelf: Shelf, name: str, text: str) -> tuple[Any, Any, list[str]]:
    """A definition as it is stated and as it would be stored, with warnings. Raises DocumentError."""
    kind, document = shelf.documents, JsonFile.of_text(text)
    try:
        definition = kind.stated.model_validate(document.content)
    except ValidationError as error:
        raise document.refuse(model_problems(error, document.content, kind.stated)) from None
    if definition.name != name:
        raise document.refuse([SpecError(f"this page edits {name}; another name is another one", "/name")])
    try:
        with page.database.read() as reading:
            first = kind.check(reading, definition)
            return definition, first, warnings_of(reading, kind, first)
    except SpecError as error:
        raise document.refuse([error]) from None
    except RefusedRequestError as error:
        raise document.refuse([SpecError(error.message, error.pointer, error.hint)]) from None


def _text(document: BaseModel) -> str:
    # The meaning of `q` at its saving stands beside it.
    is_meant = isinstance(document, TriggerDocument) or getattr(document, "q", None) is not None
    return spec_text(document, "query") if is_meant else spec_text(document)


def _tried(
    page: OwnPage, draft: ViewDocument | SegmentDocument | DerivedDocument, person: str
) -> dict[str, Any]:
    """The result of a draft for the profiles that the person sees: `attributes` of one, `number` and some `members`, or of a
    derived attribute the `effect`."""
    from transforms import compile_spec

    try:
        with page.profiles(START_SECONDS) as client:
            if isinstance(draft, DerivedDocument):
                body = {"definition": draft.model_dump(mode="json", exclude={"version"})}
                effect = client.call("POST", "derived-attributes", "preview", body=body)
                return {"effect": effect, "path": draft.path}
            if isinstance(draft, SegmentDocument):
                asked = queries.to_json(draft.segment().condition)
                found = client.call("POST", "search", body={"query": asked, "limit": EXAMPLES})
                return {"number": client.count(asked), "members": [each["id"] for each in found["items"]]}
            profile = client.lookup(person)
        if profile is None:
            return {"problem": "you see no profile of this identifier"}
        shape = compile_spec({"operation": "jmespath", "spec": draft.attributes})
        return {"attributes": shape(cast(Any, profile)["attributes"]) or {}}
    except TransformError as error:
        return {"problem": error.message}
    except ProfileServiceError as error:
        return {"problem": said(error)}


def _page(
    page: OwnPage,
    shelf: Shelf,
    name: str,
    text: str | None,
    status: int = 200,
    of: str = "",
    written: str = "fields",
    problems: Sequence[Problem] = (),
    **context: Any,
) -> Response:
    """With this text; else with what is stored, or with the beginning of a new one."""
    readers: list[tuple[str, str]] = []
    with page.database.read() as reading:
        try:
            known = shelf.documents.get(reading, name)
            versions = shelf.documents.versions(reading, PageRequest(None, SHOWN), name).items
        except UnknownSubjectError:
            known, versions = None, []
        if known is not None and known.status == "active":
            readers = [(KINDS[kind].path, each) for kind, each in readers_of(reading, known)]
        names: dict[str, list[str]] = {
            kind.kind: [each.name for each in kind.active(reading)] for kind in (ACTIVITIES, SEGMENTS, VIEWS)
        }
        names["digest"] = [each.digest for each in list_models(reading, PageRequest(None, SHOWN), ()).items]
    in_force = None if known is None else _text(known)
    if text is None:
        text = in_force or _beginning(shelf, of, name, names)
    form = shelf.form(text) if page.may("POST", f"/v1/{shelf.documents.path}/check") else ()
    written = written if form else "json"
    return page.render(
        "definition.html",
        status,
        plural=shelf.documents.path,
        shelf=shelf,
        name=name,
        known=known,
        text=text,
        readers=readers,
        form=form if written == "fields" else form_of(shelf.documents.stated, {}),
        written=written,
        problems=problems,
        wrong=at_their_places(form, problems),
        names=names,
        difference=difference(in_force, text) if in_force is not None else [],
        versions=versions,
        **{"etag": "" if known is None else etag_of(known.model_dump_json())} | context,
    )


def _beginning(shelf: Shelf, of: str, name: str, names: Mapping[str, Sequence[str]]) -> str:
    begun = shelf.beginnings.get(of) or next(iter(shelf.beginnings.values()))
    text = json.dumps({"name": "$NAME", "description": "", **begun}, indent=2).replace("$NAME", name)
    for kind, known in names.items():
        text = text.replace(f"${kind.upper()}", next(iter(known), kind))
    return text
