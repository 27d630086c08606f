"""Search Attributes, and the page of one attribute."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError
from sqlalchemy.orm import Session as Reading

from idgraph.model import paths
from idgraph.model.attributes import (
    AttributeDefinition,
    AttributeMetadata,
    AttributeStatus,
    Classification,
    DataType,
    EncryptionLevel,
    ReconciliationPolicy,
)
from idgraph.model.errors import ProfileServiceError
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.path_values import path_value
from idgraph.web.refusals import PreconditionError, RefusedRequestError
from metadata_service.api.routes import attributes as api
from metadata_service.api.routes import many_attributes as many
from metadata_service.api.service import Service
from metadata_service.attributes import catalogue
from metadata_service.attributes.effects import AttributeEffect
from metadata_service.attributes.lineage import lineage
from metadata_service.attributes.policies import policies_of
from metadata_service.specs.health import uses_of
from metadata_service.storage.database import revision_in
from metadata_service.storage.sessions import Session
from metadata_service.ui.lineage import picture
from metadata_service.ui.page import (
    ATTRIBUTES,
    OwnFields,
    SignedIn,
    Watching,
    as_json,
    curl,
    may,
    render,
    require,
    see_other,
)
from metadata_service.ui.profiles import profiles_client

router = APIRouter()

PAGE = 50
SORTABLE = ("path", "data_type", "source", "classification", "encryption", "status")
EDITED = (
    *(
        "name",
        "description",
        "owner",
        "tags",
        "data_type",
        "classification",
        "encryption",
        "authorization_level",
        "policy",
    ),
    *("sources", "indexable", "identifiable", "status"),
)
CHOICES: dict[str, list[str]] = {
    "data_type": list(map(str, DataType)),
    "classification": list(map(str, Classification)),
    "encryption": list(map(str, EncryptionLevel)),
    "policy": list(map(str, ReconciliationPolicy)),
    "status": list(map(str, AttributeStatus)),
}
AttributeAddress = "/ui/attributes/{path}"
TakenPath = Annotated[str, Path(description="Read as it was sent.")]


@router.get(ATTRIBUTES)
def search(
    request: Request,
    session: SignedIn,
    service: Service,
    wanted: api.WantedAttributes,
    sort: api.Sort = "path",
    cursor: Annotated[str | None, Query(max_length=10_000)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = PAGE,
) -> Response:
    """The list."""
    require(session, "GET", "/v1/attributes")
    page = api.search(service, PageRequest(cursor, limit), wanted, sort)
    with service.database.read() as reading:
        in_force = _in_force(reading, page.items)
        etag = revision_in(reading).etag
    return render(
        request,
        "attributes.html",
        session,
        title="Search Attributes",
        page=page,
        in_force=in_force,
        counts=api.count(service, wanted),
        etag=etag,
        may_edit_many=may(session, "POST", "/v1/attribute-edits"),
        choices=CHOICES,
        wanted=wanted,
        sort=sort,
        sortable=SORTABLE,
        curl=curl(str(request.base_url), "/v1/attributes", **dict(request.query_params.multi_items())),
    )


CHOSEN = "chosen:"
"""With a path behind it, the name of a row's checkbox; its value is the version that the row shows."""


@router.get("/ui/attribute-news")
def news(
    request: Request, session: Watching, service: Service, since: Annotated[str, Query(max_length=100)]
) -> Response:
    """What is new since the list was made; asked every second while somebody looks at it."""
    require(session, "GET", "/v1/attribute-events")
    found = many.new_attributes(service, since)
    if not found.paths:
        # Nothing to show: the list asks again with what it has.
        return Response(status_code=204)
    return render(request, "attribute_news.html", session, since=since, news=found)


@router.post("/ui/attribute-edits")
def edit_many(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Promote, reject or classify the rows that were selected."""
    require(session, "POST", "/v1/attribute-edits")
    act, level = fields.get("act", ""), fields.get("classification", "")
    chosen = [
        {"path": name.removeprefix(CHOSEN), "version": version}
        for name, version in fields.items()
        if name.startswith(CHOSEN)
    ]
    stated = {"act": act, "reason": fields.get("reason", "").strip(), "attributes": chosen}
    stated |= {"classification": level} if act == "classify" else {}
    try:
        wanted = many.AttributeEdits.model_validate(stated)
    except ValidationError:
        raise RefusedRequestError("select at least one attribute, choose what to do, and say why") from None
    results = many.edit_many(wanted, service, session.caller).results
    return render(request, "attributes_edited.html", session, title="Edited", act=act, results=results)


@router.get(AttributeAddress)
def show(
    request: Request,
    session: SignedIn,
    service: Service,
    path: TakenPath,
    asked: int = 0,
    done: Literal["", "saved", "re-encrypt"] = "",
    values: bool = False,
) -> Response:
    """One attribute; with `values`, how many profiles have one, and examples, as this person sees them."""
    path = path_value(request, 3)
    require(session, "GET", f"/v1/attributes/{path}")
    found = _values(request, session, path) if values else None
    return _page(request, session, service, path, asked=asked, done=done, values=found)


def _page(
    request: Request, session: SignedIn, service: Service, path: str, status: int = 200, **context: Any
) -> Response:
    require(session, "GET", f"/v1/attributes/{path}")
    with service.database.read() as reading:
        document = catalogue.get_attribute(reading, path)
        versions = catalogue.attribute_versions(reading, path, PageRequest(None, 20)).items
        found = lineage(reading, path)
        uses = uses_of(reading, {each.spec: each.version for each in found.writers})
        attribute = AttributeMetadata.model_validate_json(document)
        in_force = _in_force(reading, [attribute])[path]
    shown = {
        "asked": 0,
        "done": "",
        "problem": None,
        "conflict": None,
        "effect": None,
        "values": None,
        "stored": None,
        "seen": "",
        "typed": _as_fields(attribute),
        "reason": "",
    } | context
    return render(
        request,
        "attribute.html",
        session,
        status,
        title=path,
        attribute=attribute,
        in_force=in_force,
        etag=etag_of(document),
        versions=versions,
        changes=[_changed(new.metadata, old.metadata) for new, old in pairwise(versions)],
        lineage=found,
        uses=uses,
        picture=picture(found, path),
        may_edit=may(session, "PUT", f"/v1/attributes/{path}"),
        may_draft=may(session, "PUT", "/v1/specs/new"),
        choices=CHOICES,
        curl=curl(str(request.base_url), f"/v1/attributes/{_segment(path)}"),
        **shown,
    )


@router.post(AttributeAddress)
def save(
    request: Request, session: SignedIn, service: Service, fields: OwnFields, path: TakenPath
) -> Response:
    """Edit it. A conflict shows what was saved meanwhile, and keeps what was typed."""
    path = path_value(request, 3)
    require(session, "PUT", f"/v1/attributes/{path}")
    typed = {name: fields.get(name, "") for name in EDITED}
    reason = fields.get("reason", "")
    again: dict[str, Any] = {"typed": typed, "reason": reason}
    try:
        definition = AttributeDefinition.model_validate({"path": path, **_as_definition(typed)})
        precondition(fields.get("etag", ""))(_stored_document(service, path))
        effect = api.preview(path, definition, service)
        if effect.has_consequences and fields.get("seen") != _fingerprint(effect):
            stored = _count_stored(request, session, path) if effect.sealed or effect.reindexed else None
            seen = _fingerprint(effect)
            return _page(request, session, service, path, effect=effect, stored=stored, seen=seen, **again)
        answer = api.put(
            path,
            definition,
            service,
            session.caller,
            precondition(fields.get("etag", "")),
            reason,
        )
    except ValidationError as error:
        wrong = error.errors()[0]
        place = "/".join(map(str, wrong["loc"][:1]))
        return _page(request, session, service, path, 422, problem=(place, wrong["msg"]), **again)
    except RefusedRequestError as error:
        hint = f" ({error.hint})" if error.hint else ""
        problem = (error.pointer.lstrip("/"), error.message + hint)
        return _page(request, session, service, path, 422, problem=problem, **again)
    except PreconditionError:
        with service.database.read() as reading:
            known = AttributeMetadata.model_validate_json(catalogue.get_attribute(reading, path))
        return _page(request, session, service, path, 412, conflict=_as_fields(known), **again)
    target = f"{ATTRIBUTES}/{_segment(path)}"
    if answer.status_code == 202:
        return see_other(target, asked=str(json.loads(bytes(answer.body))["id"]))
    return see_other(target, done=effect.job or "saved")


@router.post(AttributeAddress + "/proposal")
def decide(
    request: Request, session: SignedIn, service: Service, fields: OwnFields, path: TakenPath
) -> Response:
    """Confirm or refuse what a detector proposes."""
    path = path_value(request, 3)
    require(session, "POST", f"/v1/attributes/{path}/proposal")
    try:
        decision = api.ProposalDecision.model_validate(
            {"decision": fields.get("decision"), "reason": fields.get("reason", "")}
        )
    except ValidationError:
        raise RefusedRequestError("a proposal is confirmed or refused") from None
    answer = api.decide(path, decision, service, session.caller.name)
    target = f"{ATTRIBUTES}/{_segment(path)}"
    if answer.status_code == 202:
        return see_other(target, asked=str(json.loads(bytes(answer.body))["id"]))
    return see_other(target)


def _fingerprint(effect: AttributeEffect) -> str:
    """Of what somebody was shown: if more would happen by now, it is shown again."""
    return hashlib.sha256(effect.model_dump_json().encode()).hexdigest()


def _stored_document(service: Service, path: str) -> str:
    with service.database.read() as reading:
        return catalogue.get_attribute(reading, path)


class ShownValues(NamedTuple):
    """Of the profiles that a person sees, or why that is not known."""

    filled: int = 0
    profiles: int = 0
    examples: Sequence[tuple[Any, int]] = ()
    problem: str = ""


def _values(request: Request, session: Session, path: str) -> ShownValues:
    try:
        with profiles_client(request, session) as client:
            known = ShownValues(client.count([{"exists": {"path": path}}]), client.count())
            try:
                return known._replace(examples=client.facets(path, limit=5))
            except ProfileServiceError as error:
                if error.status != 400:
                    raise
                # Values of protected attributes are not counted by value.
                return known
    except ProfileServiceError as error:
        # Values of protected attributes are in no index.
        return ShownValues(problem="protected values are not counted" if error.status == 400 else str(error))


def _count_stored(request: Request, session: Session, path: str) -> int | None:
    """How many profiles have a value that this person sees; None where nobody can be asked."""
    try:
        with profiles_client(request, session) as client:
            return client.count([{"exists": {"path": path}}])
    except ProfileServiceError:
        return None


def _in_force(reading: Reading, shown: list[AttributeMetadata]) -> dict[str, EncryptionLevel]:
    """The protection of attributes, with what they inherit from those above them."""
    above = {each for attribute in shown for each in paths.ancestors(attribute.path)}
    known = {each.path: each for each in (*catalogue.find_attributes(reading, above), *shown)}
    tree = policies_of(reading, known.values())
    return {each.path: tree.policy(each.path).encryption for each in shown}


def _segment(path: str) -> str:
    return quote(path, safe="")


def _as_fields(attribute: AttributeMetadata) -> dict[str, str]:
    """As the form has them."""
    stated = attribute.model_dump(mode="json", include=set(EDITED))
    return {
        name: ", ".join(value)
        if isinstance(value, list)
        else ("on" if value else "")
        if isinstance(value, bool)
        else str(value)
        for name, value in stated.items()
    }


def _as_definition(fields: dict[str, str]) -> dict[str, Any]:
    lists = {
        name: tuple(each.strip() for each in fields[name].split(",") if each.strip())
        for name in ("sources", "tags")
    }
    flags = {name: fields[name] == "on" for name in ("indexable", "identifiable")}
    return {**fields, **lists, **flags}


def _changed(new: AttributeMetadata, old: AttributeMetadata) -> list[tuple[str, str, str]]:
    """The decisions in which two versions differ."""
    return [
        (name, as_json(before), as_json(after))
        for name, after in new.model_dump(mode="json", include=set(EDITED)).items()
        if (before := old.model_dump(mode="json", include={name})[name]) != after
    ]
