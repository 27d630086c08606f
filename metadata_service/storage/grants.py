"""Requests for access: a person asks to see an attribute above their clearance, or what a view shows, or to edit a
spec; another one grants it until a day, refuses, or asks back. Rows are never changed, and the newest answer holds.

A grant is of the version of a view that was asked for, and of the levels that there were: what is above them later, it
does not show. A grant of a spec lets the person save drafts of it, whatever their role.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, Field, model_validator
from sqlalchemy import ColumnElement, Select, and_, func, or_, select
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
    SamePersonError,
    UnknownSubjectError,
)
from metadata_service.attributes.catalogue import find_attributes
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.definitions import VIEWS, view_sources
from metadata_service.specs.catalogue import get_spec
from metadata_service.storage.edits import Action, Edit
from metadata_service.storage.tables import GrantAnswerRow, GrantRequestRow, SnapshotRow
from metadata_service.storage.tokens import TokenRecord, person_of
from metadata_service.storage.users import are_one_person
from metadata_service.storage.versions import paged

LONGEST = timedelta(days=180)
REMINDER = timedelta(days=7)
ANSWERING = (Role.PUBLISHER, Role.ADMIN, Role.PRIVACY)

Step = Literal["granted", "refused", "asked", "replied", "ended"]
State = Literal["waits", "asked", "granted", "refused", "ended"]


class GrantSubject(BaseModel):
    """One of three: to see an attribute, or those that a view shows, and what is below them; or to edit a spec."""

    path: str = Field(default="", max_length=1024)
    view: str = Field(default="", max_length=100, description="The name of a view, in place of a path.")
    spec: str = Field(default="", max_length=100, description="The name of a spec, to save drafts of it.")

    @property
    def named(self) -> dict[str, str]:
        """Of which kind it is, and its name."""
        stated = {"path": self.path, "view": self.view, "spec": self.spec}
        return {kind: name for kind, name in stated.items() if name}

    @property
    def title(self) -> str:
        """As it stands in a sentence."""
        [(kind, name)] = self.named.items()
        return name if kind == "path" else f"the {kind} {name}"


class GrantWish(GrantSubject, StrictDocument):
    """What is asked for, and for what purpose."""

    purpose: str = Field(min_length=1, max_length=1000)
    until: AwareDatetime = Field(description="At most 180 days ahead.")

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if len(self.named) != 1:
            raise ValueError("ask for a path, a view or a spec")
        return self


class GrantStep(ProvenanceRecord):
    """An answer to a request, or to a question; `until` is the end of a grant."""

    action: Step
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


_NEWEST = select(func.max(GrantAnswerRow.id)).group_by(GrantAnswerRow.request_id)
"""The last answer to each request."""


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
    row = GrantRequestRow(
        snapshot_version=edit.version,
        kind=kind,
        subject=subject,
        view_version=version,
        purpose=wish.purpose,
        until=wish.until,
    )
    edit.session.add(row)
    edit.record("grant", subject, None, "requested")
    edit.session.flush()
    return row.id


def answer(
    edit: Edit,
    caller: TokenRecord,
    number: int,
    action: Literal["granted", "refused", "asked"],
    reason: str,
    until: datetime | None,
) -> None:
    """Decide on a request, as another person. Raises ClashError for one that was decided, ForbiddenError to grant what
    the caller does not see, RefusedRequestError for an end that is too late, SamePersonError, UnknownSubjectError."""
    found = get_grant(edit.session, number, edit.at)
    if found.state not in ("waits", "asked"):
        raise ClashError(f"request {number} is {found.state} already; a new one can be made")
    if are_one_person(edit.session, found.person, edit.actor):
        raise SamePersonError(
            f"request {number} is of the same person, or of one whose account counts as yours; another one answers it"
        )
    if action == "granted":
        if found.level > caller.clearance:
            raise ForbiddenError(
                f"it needs the clearance {found.level}, and yours is {caller.clearance}: nobody gives more"
            )
        if found.spec and caller.role is Role.PRIVACY:
            raise ForbiddenError("a publisher or an admin grants a spec: nobody gives more than they have")
        until = until or found.until
        _require_end(until, edit.at)
    else:
        until = None
    _step(edit, found, action, reason, until, "approved" if action == "granted" else action)


def reply(edit: Edit, number: int, reason: str) -> None:
    """The answer of who asked to a question. Raises ClashError, UnknownSubjectError."""
    found = _own(edit, number)
    if found.state != "asked":
        raise ClashError(f"nothing was asked back about request {number}")
    _step(edit, found, "replied", reason, None, "replied")


def end(edit: Edit, caller: TokenRecord, number: int, reason: str) -> None:
    """Take a request back, or end a grant early; for who asked, and for those who answer. Raises ClashError,
    UnknownSubjectError."""
    found = get_grant(edit.session, number, edit.at) if caller.role in ANSWERING else _own(edit, number)
    if found.state in ("refused", "ended"):
        raise ClashError(f"request {number} is {found.state} already")
    _step(edit, found, "ended", reason, None, "revoked")


def get_grant(session: Session, number: int, now: datetime, person: str | None = None) -> GrantRecord:
    """One request; of this person only, if one is named. Raises UnknownSubjectError."""
    found = _records(session, _requests().where(GrantRequestRow.id == number), now)
    if not found or person not in (None, found[0].person):
        raise UnknownSubjectError("there is no request of this number")
    return found[0]


def list_grants(
    session: Session,
    wanted: PageRequest,
    now: datetime,
    person: str | None = None,
    state: State | None = None,
) -> ListPage[GrantRecord]:
    """The newest first; of one person, in one state, if asked."""
    query = paged(_requests(), GrantRequestRow.id, wanted, is_reversed=True)
    if person is not None:
        query = query.where(
            or_(SnapshotRow.actor == person, SnapshotRow.actor.startswith(f"{person}/", autoescape=True))
        )
    if state is not None:
        newest = and_(GrantAnswerRow.request_id == GrantRequestRow.id, GrantAnswerRow.id.in_(_NEWEST))
        query = query.outerjoin(GrantAnswerRow, newest).where(_is_in(state, now))
    return wanted.page(_records(session, query, now), lambda each: each.id)


def grants_in_force(session: Session, now: datetime) -> list[PersonGrant]:
    """What persons see besides their clearance."""
    return [
        PersonGrant(person=person_of(edit.actor), path=path, level=level, until=given.until)
        for row, edit, given in session.execute(_granted(now).where(GrantRequestRow.kind != "spec"))
        if given.until is not None
        for path, level in zip(_shows(session, row), json.loads(given.levels), strict=True)
    ]


def specs_granted(session: Session, now: datetime, person: str) -> set[str]:
    """Names of the specs that a person may edit by a grant."""
    found = session.execute(_granted(now).where(GrantRequestRow.kind == "spec"))
    return {row.subject for row, edit, _ in found if person_of(edit.actor) == person}


def _granted(now: datetime) -> Select[GrantRequestRow, SnapshotRow, GrantAnswerRow]:
    return (
        select(GrantRequestRow, SnapshotRow, GrantAnswerRow)
        .join(SnapshotRow, SnapshotRow.version == GrantRequestRow.snapshot_version)
        .join(GrantAnswerRow, GrantAnswerRow.request_id == GrantRequestRow.id)
        .where(GrantAnswerRow.id.in_(_NEWEST), GrantAnswerRow.action == "granted", GrantAnswerRow.until > now)
        .order_by(GrantRequestRow.id)
    )


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


def _shows(session: Session, row: GrantRequestRow) -> list[str]:
    if row.view_version is None:
        return [row.subject] if row.kind == "path" else []
    view = VIEWS.at(session, row.view_version, row.subject).document
    return sorted(view_sources(view))


def _own(edit: Edit, number: int) -> GrantRecord:
    return get_grant(edit.session, number, edit.at, person_of(edit.actor))


def _step(
    edit: Edit, found: GrantRecord, action: Step, reason: str, until: datetime | None, recorded: Action
) -> None:
    row = GrantAnswerRow(
        request_id=found.id,
        snapshot_version=edit.version,
        action=action,
        reason=reason,
        until=until,
        levels=json.dumps(_levels(edit.session, found.shows)),
    )
    edit.session.add(row)
    edit.record("grant", "".join(found.named.values()), None, recorded)


def _require_end(until: datetime, now: datetime) -> None:
    if not now < until <= now + LONGEST:
        raise RefusedRequestError(f"the end is ahead, by at most {LONGEST.days} days", "/until")


def _requests() -> Select[GrantRequestRow, SnapshotRow]:
    return select(GrantRequestRow, SnapshotRow).join(
        SnapshotRow, SnapshotRow.version == GrantRequestRow.snapshot_version
    )


def _records(
    session: Session, asked: Select[GrantRequestRow, SnapshotRow], now: datetime
) -> list[GrantRecord]:
    found = [(each[0], each[1]) for each in session.execute(asked)]
    steps: dict[int, list[GrantStep]] = {request.id: [] for request, _ in found}
    query = (
        select(GrantAnswerRow, SnapshotRow)
        .join(SnapshotRow, SnapshotRow.version == GrantAnswerRow.snapshot_version)
        .where(GrantAnswerRow.request_id.in_(steps))
        .order_by(GrantAnswerRow.id)
    )
    for row, edit in session.execute(query):
        stated = {**edit.provenance(), "action": row.action, "until": row.until, "reason": row.reason}
        steps[row.request_id].append(GrantStep.model_validate(stated))
    shown = {request.id: _shows(session, request) for request, _ in found}
    every = sorted({path for shows in shown.values() for path in shows})
    levels = dict(zip(every, _levels(session, every), strict=True))
    records = []
    for request, edit in found:
        own, shows = steps[request.id], shown[request.id]
        state = _state(own, now)
        records.append(
            GrantRecord(
                id=request.id,
                **{request.kind: request.subject},
                view_version=request.view_version,
                shows=shows,
                person=person_of(edit.actor),
                purpose=request.purpose,
                asked=edit.at,
                until=request.until,
                state=state,
                ends=own[-1].until if state == "granted" else None,
                level=max((levels[path] for path in shows), default=0),
                steps=own,
            )
        )
    return records


def _state(steps: Sequence[GrantStep], now: datetime) -> State:
    last = steps[-1] if steps else None
    if last is None or last.action == "replied":
        return "waits"
    is_over = last.action == "granted" and last.until is not None and last.until <= now
    return "ended" if is_over else last.action


def _is_in(state: State, now: datetime) -> ColumnElement[bool]:
    """`_state` of the newest answer, in SQL."""
    action, until = GrantAnswerRow.action, GrantAnswerRow.until
    if state == "waits":
        return or_(action.is_(None), action == "replied")
    if state == "granted":
        return and_(action == state, until > now)
    if state == "ended":
        return or_(action == state, and_(action == "granted", until <= now))
    return action == state


def _levels(session: Session, subjects: Sequence[str]) -> list[int]:
    """Of each path the highest level at it and below it."""
    around = attributes_around(session, subjects)
    tree = policies_of(session, around.values())
    return [
        max(tree.level(each) for each in (path, *(each for each in around if paths.is_within(each, path))))
        for path in subjects
    ]
