"""Search Attributes, and the page of one attribute."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from sys import float_info
from typing import Any, Literal, get_args
from urllib.parse import quote

from fastapi import APIRouter, Response
from pydantic import ValidationError
from sqlalchemy.orm import Session as Reading

from idgraph.model import paths
from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, EncryptionLevel
from idgraph.model.durations import TimeForm
from idgraph.model.errors import ProfileServiceError
from idgraph.model.queries import AnyOf, Condition, Prefix, Query, Range, Term, to_json
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import PreconditionError, RefusedRequestError
from metadata_service.api.routes import attributes as api
from metadata_service.api.routes import many_attributes as many
from metadata_service.attributes import catalogue
from metadata_service.attributes.effects import changes_of
from metadata_service.attributes.lineage import lineage
from metadata_service.attributes.policies import ATTRIBUTES as CATALOGUE
from metadata_service.attributes.policies import policies_of
from metadata_service.attributes.rules import classification_levels
from metadata_service.behaviour import DERIVED_ATTRIBUTES
from metadata_service.specs.health import uses_of
from metadata_service.storage.database import revision_in
from metadata_service.ui.frame import ATTRIBUTES
from metadata_service.ui.page import (
    OwnFields,
    OwnPage,
    Paging,
    SignedIn,
    Text,
    Watching,
    reason_of,
    see_other,
)

router = APIRouter()

EDITED = [each for each in AttributeDefinition.model_fields if each not in ("path", "source")]
LISTS = ("sources", "tags")
FLAGS = ("indexable", "identifiable")
TIME_FORMS = ("", *get_args(TimeForm))
AttributeAddress = "/ui/attributes/{path}"
Done = Literal["", "saved", "re-encrypt"]


@router.get(ATTRIBUTES)
def search(page: SignedIn, wanted: api.WantedAttributes, paging: Paging, sort: api.Sort = "path") -> Response:
    """The list."""
    page.require("GET", "/v1/attributes")
    found = api.search(page.service, paging, wanted, sort)
    with page.database.read() as reading:
        in_force = _in_force(reading, found.items)
        etag = revision_in(reading).etag
    return page.render(
        "attributes.html",
        page=found,
        in_force=in_force,
        counts=api.count(page.service, wanted),
        etag=etag,
        fields=AttributeDefinition.model_fields,
        wanted=wanted,
        sort=sort,
    )


CHOSEN = "chosen:"
"""With a path behind it, the name of a row's checkbox; its value is the version that the row shows."""


@router.get("/ui/attribute-news")
def news(page: Watching, since: Text) -> Response:
    """Attributes that are new since the list was made; the page asks every second."""
    page.require("GET", "/v1/attribute-events")
    found = many.new_attributes(page.service, since)
    if not found.paths:
        # Nothing to show: the list asks again with what it has.
        return Response(status_code=204)
    return page.render("attribute_news.html", since=since, news=found)


@router.post("/ui/attribute-edits")
def edit_many(page: SignedIn, fields: OwnFields) -> Response:
    """Promote, reject or classify the rows that were selected."""
    page.require("POST", "/v1/attribute-edits")
    act, level = fields.get("act", ""), fields.get("classification", "")
    chosen = [
        {"path": name.removeprefix(CHOSEN), "version": version}
        for name, version in fields.items()
        if name.startswith(CHOSEN)
    ]
    stated = {"act": act, "reason": reason_of(fields), "attributes": chosen}
    stated |= {"classification": level} if act == "classify" else {}
    try:
        wanted = many.AttributeEdits.model_validate(stated)
    except ValidationError:
        raise RefusedRequestError("select at least one attribute, choose an act, and give a reason") from None
    results = many.edit_many(wanted, page.service, page.caller).results
    return page.render("attributes_edited.html", act=act, results=results)


@router.get(AttributeAddress)
def show(
    page: SignedIn, path: api.AttributePath, asked: int = 0, done: Done = "", values: bool = False
) -> Response:
    """One attribute; with `values`, how many profiles have one, and examples, as this person sees them."""
    page.require("GET", f"/v1/attributes/{path}")
    return _page(page, path, asked=asked, done=done, values=_values(page, path) if values else None)


def _page(page: OwnPage, path: str, status: int = 200, **context: Any) -> Response:
    with page.database.read() as reading:
        document = catalogue.get_attribute(reading, path)
        versions = CATALOGUE.versions(reading, PageRequest(None, 20), path).items
        found = lineage(reading, path)
        derived = [
            each.name for each in DERIVED_ATTRIBUTES.active(reading) if paths.is_within(path, each.path)
        ]
        uses = uses_of(reading, {each.spec: each.version for each in found.writers})
        attribute = AttributeMetadata.model_validate_json(document)
        in_force = _in_force(reading, [attribute])[path]
        levels = classification_levels(reading).model_dump_json()
    known = _as_fields(attribute)
    return page.render(
        "attribute.html",
        status,
        attribute=attribute,
        in_force=in_force,
        versions=versions,
        changes=[changes_of(old.document, new.document) for new, old in pairwise(versions)],
        lineage=found,
        derived=derived,
        levels=levels,
        uses=uses,
        fields=AttributeDefinition.model_fields,
        time_forms=TIME_FORMS,
        known=known,
        **{"typed": known, "etag": etag_of(document)} | context,
    )


@router.post(AttributeAddress)
def save(page: SignedIn, fields: OwnFields, path: api.AttributePath) -> Response:
    """Edit it. A conflict shows what was saved meanwhile, and keeps what was typed."""
    page.require("PUT", f"/v1/attributes/{path}")
    reason, check = reason_of(fields), precondition(fields.get("etag", ""))
    typed = {name: fields.get(name, "") for name in EDITED}
    again: dict[str, Any] = {"typed": typed, "reason": reason}
    try:
        definition = AttributeDefinition.model_validate({"path": path, **_as_definition(typed)})
        with page.database.read() as reading:
            check(catalogue.get_attribute(reading, path))
        effect = api.preview(path, definition, page.service)
        seen = hashlib.sha256(effect.model_dump_json().encode()).hexdigest()
        if effect.has_consequences and fields.get("seen") != seen:
            # If more would happen by now than was shown, it is shown again.
            stored = _values(page, path).get("filled") if effect.sealed or effect.reindexed else None
            return _page(page, path, effect=effect, stored=stored, seen=seen, **again)
        answer = api.put(path, definition, page.service, page.caller, check, reason)
    except ValidationError as error:
        wrong = error.errors()[0]
        place = "/".join(map(str, wrong["loc"][:1]))
        return _page(page, path, 422, problem=(place, wrong["msg"]), etag=fields.get("etag", ""), **again)
    except RefusedRequestError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return _page(page, path, 422, problem=(error.pointer.lstrip("/"), error.message + hint), **again)
    except PreconditionError:
        return _page(page, path, 412, is_conflict=True, **again)
    return _kept(path, answer, done=effect.job or "saved")


@router.post(AttributeAddress + "/proposal")
def decide(page: SignedIn, fields: OwnFields, path: api.AttributePath) -> Response:
    """Confirm or refuse what a detector proposes."""
    page.require("POST", f"/v1/attributes/{path}/proposal")
    try:
        stated = {"decision": fields.get("decision"), "reason": reason_of(fields)}
        decision = api.ProposalDecision.model_validate(stated)
    except ValidationError:
        raise RefusedRequestError("a proposal is confirmed or refused") from None
    return _kept(path, api.decide(path, decision, page.service, page.caller.name))


def _kept(path: str, answer: Response, **done: str) -> Response:
    """To its page, which says whether the edit waits for a second person."""
    if answer.status_code == 202:
        done = {"asked": str(json.loads(bytes(answer.body))["id"])}
    return see_other(f"{ATTRIBUTES}/{quote(path, safe='')}", **done)


def _values(page: OwnPage, path: str) -> dict[str, Any]:
    """Numbers of the profiles that a person sees: `filled` ones, those by `types` of their values, and some
    `examples`. Or the `problem`, if that is not known."""
    kinds: dict[str, Condition] = {
        "text": Prefix(path, ""),
        "number": Range(path, lower=-float_info.max),
        "boolean": AnyOf((Term(path, True), Term(path, False))),
    }
    try:
        with page.profiles() as client:
            known = {"filled": client.count([{"exists": {"path": path}}]), "profiles": client.count()}
            try:
                counts = {name: client.count(to_json(Query((kind,)))) for name, kind in kinds.items()}
                return known | {"types": counts, "examples": client.facets(path, limit=5)}
            except ProfileServiceError as error:
                if error.status != 400:
                    raise
                # Values of protected attributes are not counted by value.
                return known
    except ProfileServiceError as error:
        # Values of protected attributes are in no index.
        return {"problem": "protected values are not counted" if error.status == 400 else str(error)}


def _in_force(reading: Reading, shown: list[AttributeMetadata]) -> dict[str, EncryptionLevel]:
    """The protection of attributes, with what they inherit from those above them."""
    above = {each for attribute in shown for each in paths.ancestors(attribute.path)}
    known = {each.path: each for each in (*catalogue.find_attributes(reading, above), *shown)}
    tree = policies_of(reading, known.values())
    return {each.path: tree.policy(each.path).encryption for each in shown}


def _as_fields(attribute: AttributeMetadata) -> dict[str, str]:
    """As the form has them."""
    stated = attribute.model_dump(mode="json", include=set(EDITED))
    lists = {name: ", ".join(stated[name]) for name in LISTS}
    flags = {name: "on" if stated[name] else "" for name in FLAGS}
    return {"time": ""} | {name: str(value) for name, value in stated.items()} | lists | flags


def _as_definition(fields: dict[str, str]) -> dict[str, Any]:
    lists = {name: tuple(each.strip() for each in fields[name].split(",") if each.strip()) for name in LISTS}
    flags = {name: fields[name] == "on" for name in FLAGS}
    return {**fields, **lists, **flags, "time": fields["time"] or None}
