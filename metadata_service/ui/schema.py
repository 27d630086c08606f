"""Schema: what holds for attributes that nobody declared, what each classification level means, caps, and the purge."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from idgraph.model.classification import Classification, EncryptionLevel
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults
from idgraph.web.conditional import etag_of, precondition
from metadata_service.api.routes import many_attributes as api
from metadata_service.api.routes.documents import put_document
from metadata_service.attributes.rules import DEFAULTS, LEVELS
from metadata_service.attributes.undecided import Purge
from metadata_service.storage.versions import Stated, VersionedDocuments
from metadata_service.ui.page import OwnFields, OwnPage, SignedIn, Text, reason_of, see_other

router = APIRouter()

PAGE = "/ui/schema"


@router.get(PAGE)
def show(page: SignedIn, done: Text = "", asked: int = 0) -> Response:
    """All of it."""
    page.require("GET", "/v1/discovery-defaults")
    return _page(page, done=done, asked=asked)


def _page(page: OwnPage, form: str = "", status: int = 200, **context: Any) -> Response:
    """With a `problem`, of this form."""
    with page.database.read() as reading:
        defaults, levels = DEFAULTS.get(reading), LEVELS.get(reading)
    return page.render(
        "schema.html",
        status,
        form=form,
        defaults=defaults,
        levels=levels,
        etags=[etag_of(each.model_dump_json()) for each in (defaults, levels)],
        counts=api.get_counts(page.service),
        classifications=Classification,
        encryptions=EncryptionLevel,
        detections=DetectionMode,
        **context,
    )


@router.post(PAGE + "/defaults")
def save_defaults(page: SignedIn, fields: OwnFields) -> Response:
    """Defaults and caps; what weakens waits for a second person."""
    page.require("PUT", "/v1/discovery-defaults")
    stated: dict[str, Any] = {name: fields[name] for name in DiscoveryDefaults.model_fields if name in fields}
    lines = fields.get("value_keys", "").split("\n")
    stated |= {
        "value_keys": [each.strip() for each in lines if each.strip()],
        "indexable": fields.get("indexable") == "on",
    }
    return _save(page, fields, "defaults", DEFAULTS, stated)


@router.post(PAGE + "/levels")
def save_levels(page: SignedIn, fields: OwnFields) -> Response:
    """The policies of each level for attributes without one of their own."""
    page.require("PUT", "/v1/classification-levels")
    stated = {
        str(level): {
            "encryption": fields.get(f"{level}-encryption", ""),
            "indexable": fields.get(f"{level}-indexable") == "on",
            "authorization_level": fields.get(f"{level}-authorization_level", ""),
        }
        for level in Classification
    }
    return _save(page, fields, "levels", LEVELS, stated)


def _save(
    page: OwnPage,
    fields: dict[str, str],
    form: str,
    kind: VersionedDocuments[Stated, Any],
    stated: dict[str, Any],
) -> Response:
    page.on_refusal(_page, form)
    model, check = kind.stated.model_validate(stated), precondition(fields.get("etag", ""))
    answer = put_document(kind, model, page.service, page.caller.name, check, reason_of(fields))
    number = answer.headers.get("Location", "").rpartition("/")[2]
    return see_other(PAGE, asked=number) if answer.status_code == 202 else see_other(PAGE, done=form)


@router.post(PAGE + "/purge")
def purge(page: SignedIn, fields: OwnFields) -> Response:
    """First say what would go; then, by the button below that, take it out."""
    page.require("POST", "/v1/attribute-purges")
    is_dry = fields.get("act") != "purge"
    source, prefix = fields.get("source") or None, fields.get("prefix", "")[:1024]
    wanted = Purge(source=source, prefix=prefix, dry_run=is_dry)
    page.on_refusal(_page, "purge", wanted=wanted)
    found = api.purge_undecided(wanted, page.service, page.caller.name, reason_of(fields))
    return _page(page, purge=found, wanted=wanted)
