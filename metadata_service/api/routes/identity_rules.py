"""Identity rules: one document."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from idgraph.model.identity_rules import IdentityRules
from idgraph.model.records import CheckRecord, RulesRecord, RulesVersionRecord
from idgraph.web.conditional import IfNoneMatch, Precondition, json_answer
from idgraph.web.cursors import ListPage
from metadata_service import identity_rules as catalogue
from metadata_service.api.service import Actor, Paging, Reason, Service

router = APIRouter(prefix="/v1/identity-rules", tags=["identity rules"])

Version = Annotated[int, Path(ge=1, lt=2**31)]


@router.get("", response_model=RulesRecord)
def get(service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """The rules in force."""
    with service.database.read() as session:
        record = catalogue.newest_rules(session)
    return json_answer(record.stated, if_none_match)


@router.put("", response_model=RulesRecord)
def put(
    rules: IdentityRules, service: Service, actor: Actor, precondition: Precondition, reason: Reason = ""
) -> Response:
    """Put other rules in force, as a new version. The same again makes none."""
    catalogue.check_rules(rules)
    with service.database.write(actor, reason) as edit:
        record = catalogue.save_rules(edit, rules, precondition)
    return json_answer(record.stated)


@router.post("/check")
def check_only(rules: IdentityRules) -> CheckRecord:
    """Would these rules be accepted? Nothing is stored."""
    catalogue.check_rules(rules)
    return CheckRecord(warnings=[])


@router.get("/versions", response_model_exclude_unset=True)
def list_versions(service: Service, paging: Paging) -> ListPage[RulesVersionRecord]:
    """All versions that were saved, the newest first."""
    with service.database.read() as session:
        return catalogue.rules_versions(session, paging)


@router.get("/versions/{version}", response_model_exclude_unset=True)
def get_version(version: Version, service: Service) -> RulesVersionRecord:
    """One version of the rules."""
    with service.database.read() as session:
        return catalogue.rules_version(session, version)
