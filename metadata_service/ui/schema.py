"""Schema: what holds for attributes that nobody declared, what each classification level means, caps, and the purge."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ValidationError

from idgraph.model.classification import Classification, ClassificationLevels, EncryptionLevel
from idgraph.model.records import PurgeRecord
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.refusals import PreconditionError, RefusedRequestError
from metadata_service.api.routes import policies as api
from metadata_service.api.service import Service
from metadata_service.attributes.rules import classification_levels, discovery_defaults
from metadata_service.attributes.undecided import Purge
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other

router = APIRouter()

PAGE = "/ui/schema"
CHANGED = "Somebody changed them meanwhile. They are shown as they are now; type yours again."


@router.get(PAGE)
def show(request: Request, session: SignedIn, service: Service, done: str = "", asked: int = 0) -> Response:
    """All of it."""
    require(session, "GET", "/v1/discovery-defaults")
    return _page(request, session, service, done=done[:20], asked=asked)


def _page(
    request: Request, session: Session, service: Service, status: int = 200, **context: Any
) -> Response:
    with service.database.read() as reading:
        defaults, levels = discovery_defaults(reading), classification_levels(reading)
    shown: dict[str, Any] = {
        "done": "",
        "asked": 0,
        "problem": None,
        "purge": None,
        "wanted": Purge(),
    } | context
    return render(
        request,
        "schema.html",
        session,
        status,
        title="Schema",
        defaults=defaults,
        levels={str(each): levels.policy(each) for each in Classification},
        etags={
            "defaults": etag_of(defaults.model_dump_json()),
            "levels": etag_of(levels.model_dump_json()),
        },
        counts=api.get_counts(service),
        choices={
            "classification": list(map(str, Classification)),
            "encryption": list(map(str, EncryptionLevel)),
            "detection": list(map(str, DetectionMode)),
        },
        may_edit=may(session, "PUT", "/v1/discovery-defaults"),
        may_purge=may(session, "POST", "/v1/attribute-purges"),
        curl=curl(str(request.base_url), "/v1/discovery-defaults"),
        **shown,
    )


@router.post(PAGE + "/defaults")
def save_defaults(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Defaults and caps; what weakens waits for a second person."""
    require(session, "PUT", "/v1/discovery-defaults")
    stated: dict[str, Any] = {name: fields[name] for name in DiscoveryDefaults.model_fields if name in fields}
    lines = fields.get("value_keys", "").split("\n")
    stated |= {
        "value_keys": [each.strip() for each in lines if each.strip()],
        "indexable": fields.get("indexable") == "on",
    }
    return _save(request, session, service, fields, "defaults", DiscoveryDefaults, stated)


@router.post(PAGE + "/levels")
def save_levels(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """What each level means where an attribute says nothing else."""
    require(session, "PUT", "/v1/classification-levels")
    stated = {
        str(level): {
            "encryption": fields.get(f"{level}-encryption", ""),
            "indexable": fields.get(f"{level}-indexable") == "on",
            "authorization_level": fields.get(f"{level}-authorization_level", ""),
        }
        for level in Classification
    }
    return _save(request, session, service, fields, "levels", ClassificationLevels, stated)


def _save(
    request: Request,
    session: Session,
    service: Service,
    fields: dict[str, str],
    form: str,
    model: type[BaseModel],
    stated: dict[str, Any],
) -> Response:
    put: Any = api.put_defaults if form == "defaults" else api.put_levels
    check, reason = precondition(fields.get("etag", "")), fields.get("reason", "")[:1000]
    try:
        answer = put(model.model_validate(stated), service, session.caller.name, check, reason)
    except ValidationError as error:
        wrong = error.errors()[0]
        problem = f"{' '.join(map(str, wrong['loc'])).replace('_', ' ')}: {wrong['msg']}"
        return _page(request, session, service, 422, problem=(form, problem))
    except RefusedRequestError as error:
        return _page(request, session, service, 422, problem=(form, f"{error.pointer} {error.message}"))
    except PreconditionError:
        return _page(request, session, service, 412, problem=(form, CHANGED))
    number = answer.headers.get("Location", "").rpartition("/")[2]
    return see_other(PAGE, asked=number) if answer.status_code == 202 else see_other(PAGE, done=form)


@router.post(PAGE + "/purge")
def purge(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """First say what would go; then, by the button below that, take it out."""
    require(session, "POST", "/v1/attribute-purges")
    is_dry = fields.get("act") != "purge"
    wanted = Purge(
        source=fields.get("source") or None, prefix=fields.get("prefix", "")[:1024], dry_run=is_dry
    )
    try:
        found: PurgeRecord = api.purge_undecided(
            wanted, service, session.caller.name, fields.get("reason", "")[:1000]
        )
    except RefusedRequestError as error:
        return _page(request, session, service, 422, problem=("purge", error.message), wanted=wanted)
    return _page(request, session, service, purge=found, wanted=wanted)
