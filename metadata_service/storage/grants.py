"""Requests for access: a person asks to see an attribute above their clearance, or what a view shows, or to
edit a spec; another one grants it until a day, refuses, or asks back. Rows are never changed, and the newest
answer holds.

A grant is of the version of a view that was asked for, and of the levels that there were: what is above them
later, it does not show. A grant of a spec lets the person save drafts of it, whatever their role.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, Field, model_validator
from sqlalchemy import ColumnElement, or_
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.callers import PersonGrant, Role
from idgraph.model.documents import StrictDocument
from idgraph.model.records import ProvenanceRecord
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import (
    ClashError,
    ForbiddenError,
    RefusedRequestError,
    UnknownSubjectError,
)
from metadata_service.attributes.catalogue import find_attributes
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.definitions import VIEWS, view_sources
from metadata_service.specs.catalogue import get_spec
from metadata_service.storage.edits import Edit
from metadata_service.storage.requests import (
    GRANTS,
    KeptRequest,
    Step,
    add_step,
    find_requests,
    keep,
    require_second_person,
    require_undecided,
)
from metadata_service.storage.tables import RequestRow, SnapshotRow
from metadata_service.storage.tokens import TokenRecord, person_of

LONGEST = timedelta(days=180)
REMINDER = timedelta(days=7)
ANSWERING = (Role.PUBLISHER, Role.ADMIN, Role.PRIVACY)

State = Literal["waits", "asked", "granted", "refused", "ended"]


class GrantSubject(BaseModel):
    """One of three: to see an attribute, or those that a view shows, and what is below them; or to edit a
    spec."""

    path: str = Field(default="", max_length=1024)
    view: str = Field(default="", max_length=100, description="The name of a view, in place of a path.")
    spec: str = Field(default="", max_length=100, description="The name of a spec, to save drafts of it.")

    @property
    def named(self) -> dict[str, str]:
        """Its kind and its name."""
        stated = {"path": self.path, "view": self.view, "spec": self.spec}
        return {kind: name for kind, name in stated.items() if name}

    @property
    def title(self) -> str:
        """As it stands in a sentence."""
        [(kind, name)] = self.named.items()
        return name if kind == "path" else f"the {kind} {name}"


class GrantWish(GrantSubject, StrictDocument):
    """The requested grant, with its purpose."""

    purpose: str = Field(min_length=1, max_length=1000)
    until: AwareDatetime = Field(description="At most 180 days ahead.")

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if len(self.named) != 1:
            raise ValueError("ask for a path, a view or a spec")
        return self


class GrantStep(ProvenanceRecord):
    """An answer to a request, or to a question; `until` is the end of a grant."""

    action: Literal["granted", "refused", "asked", "replied", "ended"]
    until: datetime | None


class GrantRecord(GrantSubject):
    """A request with everything that was answered, the newest last."""

    id: int
    view_version: int | None = Field(description="The version of the view that is shown.")
    shows: list[str] = Field(description="The paths that a grant shows, with what is below them.")
    person: str
    purpose: str
    asked: datetime
    until: datetime
    state: State
    ends: datetime | None = Field(description="End of a grant that is in force.")
    level: int = Field(
        description="The clearance that what it shows, and what is below that, needs without a grant."
    )
    steps: list[GrantStep]


_ASKED = RequestRow.kind.in_(GRANTS)


def ask(edit: Edit, wish: GrantWish) -> int:
    """Keep a request; gives its number. Raises UnknownSubjectError, RefusedRequestError."""
    version = None
    [(kind, subject)] = wish.named.items()
    if wish.spec:
        get_spec(edit.session, wish.spec)
    elif wish.view:
        view = VIEWS.get(edit.session, wish.view)
        version = view.version
        if "" in view_sources(view):
            hint = "ask for its attributes"
            raise RefusedRequestError("this view may show anything of a profile", "/view", hint)
    elif not list(find_attributes(edit.session, [wish.path])):
        raise UnknownSubjectError("no attribute has this path")
    _require_end(wish.until, edit.at)
    stated = {"purpose": wish.purpose, "until": wish.until.isoformat(), "view_version": version}
    return keep(edit, f"grant_{kind}", subject, json.dumps(stated))


def answer(
    edit: Edit,
    caller: TokenRecord,
    number: int,
    action: Literal["granted", "refused", "asked"],
    reason: str,
    until: datetime | None,
) -> None:
    """Decide on a request, as another person. Raises ClashError for one that was decided, ForbiddenError to
    grant what the caller does not see, RefusedRequestError for an end that is too late, SamePersonError,
    UnknownSubjectError."""
    kept = _kept(edit.session, number)
    require_undecided(kept, edit.at, "request")
    require_second_person(edit, kept, "request")
    if action == "granted":
        found = _record(edit.session, kept, edit.at)
        if found.level > caller.clearance:
            raise ForbiddenError(
                f"it needs the clearance {found.level}, and yours is {caller.clearance}: nobody gives more"
            )
        if found.spec and caller.role is Role.PRIVACY:
            raise ForbiddenError("a publisher or an admin grants a spec: nobody gives more than they have")
        until = until or found.until
        _require_end(until, edit.at)
    _step(edit, kept, action, reason, until if action == "granted" else None)


def reply(edit: Edit, number: int, reason: str) -> None:
    """The answer of who asked to a question. Raises ClashError, UnknownSubjectError."""
    kept = _kept(edit.session, number, person_of(edit.actor))
    if kept.state(edit.at) != "asked":
        raise ClashError(f"nothing was asked back about request {number}")
    _step(edit, kept, "replied", reason)


def end(edit: Edit, caller: TokenRecord, number: int, reason: str) -> None:
    """Take a request back, or end a grant early; for who asked, and for those who answer. Raises ClashError,
    UnknownSubjectError."""
    kept = _kept(edit.session, number, None if caller.role in ANSWERING else person_of(edit.actor))
    if (state := kept.state(edit.at)) in ("refused", "ended"):
        raise ClashError(f"request {number} is {state} already")
    _step(edit, kept, "ended", reason)


def get_grant(session: Session, number: int, now: datetime, person: str | None = None) -> GrantRecord:
    """One request; of this person only, if one is named. Raises UnknownSubjectError."""
    return _record(session, _kept(session, number, person), now)


def list_grants(
    session: Session,
    wanted: PageRequest,
    now: datetime,
    person: str | None = None,
    state: State | None = None,
) -> ListPage[GrantRecord]:
    """The newest first; of one person, in one state, if asked."""
    of: list[ColumnElement[bool]] = [_ASKED]
    if person is not None:
        actor = SnapshotRow.actor
        of.append(or_(actor == person, actor.startswith(f"{person}/", autoescape=True)))
    found = find_requests(session, *of, wanted=wanted, state=state, now=now)
    return wanted.page(_records(session, found, now), lambda each: each.id)


def grants_in_force(session: Session, now: datetime) -> list[PersonGrant]:
    """The grants that persons have besides their clearance."""
    return [
        PersonGrant(person=person_of(kept.asked.actor), path=path, level=level, until=given.until)
        for kept in find_requests(session, _ASKED, state="granted", now=now)
        if (given := kept.steps[-1][0]).until is not None
        for path, level in zip(_shows(session, kept), json.loads(given.levels), strict=True)
    ]


def specs_granted(session: Session, now: datetime, person: str) -> set[str]:
    """Names of the specs that a person may edit by a grant."""
    found = find_requests(session, RequestRow.kind == "grant_spec", state="granted", now=now)
    return {each.row.subject for each in found if person_of(each.asked.actor) == person}


def ending(session: Session, now: datetime, person: str) -> list[GrantRecord]:
    """The grants of a person that end soon, without those for which a later end is granted or asked for."""
    own = list_grants(session, PageRequest(None, 200), now, person).items
    latest = {
        each.title: each.ends or each.until
        for each in sorted(own, key=lambda each: each.ends or each.until)
        if each.state not in ("refused", "ended")
    }
    return [
        each for each in own if each.ends and each.ends <= now + REMINDER and each.ends == latest[each.title]
    ]


def _shows(session: Session, kept: KeptRequest) -> list[str]:
    if kept.row.kind != "grant_view":
        return [kept.row.subject] if kept.row.kind == "grant_path" else []
    view = VIEWS.at(session, kept.document["view_version"], kept.row.subject).document
    return sorted(view_sources(view))


def _kept(session: Session, number: int, person: str | None = None) -> KeptRequest:
    for found in find_requests(session, _ASKED, RequestRow.id == number):
        if person in (None, person_of(found.asked.actor)):
            return found
    raise UnknownSubjectError("there is no request of this number")


def _step(edit: Edit, kept: KeptRequest, action: Step, reason: str, until: datetime | None = None) -> None:
    add_step(edit, kept, action, reason, _levels(edit.session, _shows(edit.session, kept)), until)


def _require_end(until: datetime, now: datetime) -> None:
    if not now < until <= now + LONGEST:
        raise RefusedRequestError(f"the end is ahead, by at most {LONGEST.days} days", "/until")


def _record(session: Session, kept: KeptRequest, now: datetime) -> GrantRecord:
    return _records(session, [kept], now)[0]


def _records(session: Session, requests: Sequence[KeptRequest], now: datetime) -> list[GrantRecord]:
    shown = {request.row.id: _shows(session, request) for request in requests}
    every = sorted({path for shows in shown.values() for path in shows})
    levels = dict(zip(every, _levels(session, every), strict=True))
    return [
        GrantRecord.model_validate(
            {
                "id": request.row.id,
                GRANTS[request.row.kind]: request.row.subject,
                **request.document,
                "shows": shown[request.row.id],
                "person": person_of(request.asked.actor),
                "asked": request.asked.at,
                "state": (state := request.state(now)),
                "ends": request.steps[-1][0].until if state == "granted" else None,
                "level": max((levels[path] for path in shown[request.row.id]), default=0),
                "steps": [
                    {**edit.provenance(), "action": step.action, "until": step.until, "reason": step.reason}
                    for step, edit in request.steps
                ],
            }
        )
        for request in requests
    ]


def _levels(session: Session, subjects: Sequence[str]) -> list[int]:
    """The highest level at each path and below it."""
    around = attributes_around(session, subjects)
    tree = policies_of(session, around.values())
    return [
        max(tree.level(each) for each in (path, *(each for each in around if paths.is_within(each, path))))
        for path in subjects
    ]
