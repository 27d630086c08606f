"""Requests: one person asks, and another one decides. Rows are never changed, and the newest step holds.

The version that a request is part of has the person, the time and the reason; so has the version of each
step. A grant has its purpose and the reasons of its steps apart: every reader sees those of versions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import ClashError, SamePersonError
from metadata_service.storage.edits import Action, Edit, Kind
from metadata_service.storage.tables import RequestRow, RequestStepRow, SnapshotRow
from metadata_service.storage.tokens import person_of
from metadata_service.storage.users import are_one_person
from metadata_service.storage.versions import paged

Step = Literal["approved", "granted", "refused", "asked", "replied", "ended"]
State = Literal["waits", "approved", "granted", "refused", "asked", "ended"]
GRANTS = {"grant_path": "path", "grant_view": "view", "grant_spec": "spec"}
"""The kinds of requests that ask for access, and what of; the others ask to save a document of their kind."""
_RECORDED: dict[Step, Action] = {"granted": "approved", "ended": "revoked"}


class KeptRequest(NamedTuple):
    """A request and its steps, the newest last, each with its version."""

    row: RequestRow
    asked: SnapshotRow
    steps: list[tuple[RequestStepRow, SnapshotRow]]

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.row.document))

    def state(self, now: datetime) -> State:
        """A question that was answered waits again; a grant ends by itself."""
        last = self.steps[-1][0] if self.steps else None
        if last is None or last.action == "replied":
            return "waits"
        return "ended" if last.until is not None and last.until <= now else cast(State, last.action)


def keep(
    edit: Edit, kind: str, subject: str, document: str, base: str = "", weakens: Sequence[str] = ()
) -> int:
    """Keep a request; gives its number."""
    row = RequestRow(
        snapshot_version=edit.version,
        kind=kind,
        subject=subject,
        base=base,
        document=document,
        weakens=json.dumps(weakens),
    )
    edit.session.add(row)
    edit.record(_logged(kind), subject, None, "requested")
    edit.session.flush()
    return row.id


def add_step(
    edit: Edit,
    request: KeptRequest,
    action: Step,
    reason: str = "",
    levels: Sequence[int] = (),
    until: datetime | None = None,
) -> None:
    """A decision or a message of a person."""
    row = RequestStepRow(
        request_id=request.row.id,
        snapshot_version=edit.version,
        action=action,
        reason=reason,
        levels=json.dumps(levels),
        until=until,
    )
    edit.session.add(row)
    recorded = _RECORDED.get(action, cast(Action, action))
    edit.record(_logged(request.row.kind), request.row.subject, None, recorded)
    edit.session.flush()


def require_undecided(request: KeptRequest, now: datetime, what: str) -> None:
    """Raises ClashError; `what` is what people call such a request."""
    state = request.state(now)
    if state not in ("waits", "asked"):
        raise ClashError(f"{what} {request.row.id} was {state} already")


def require_second_person(edit: Edit, request: KeptRequest, what: str) -> None:
    """Raises SamePersonError."""
    if problem := same_person_problem(edit.session, request.asked.actor, edit.actor):
        raise SamePersonError(f"{what} {request.row.id} {problem}")


def same_person_problem(session: Session, asked_by: str, actor: str) -> str | None:
    """The reason why somebody cannot approve a person's request, or None."""
    if person_of(asked_by) == person_of(actor):
        return "was asked for by the same person; a second person approves it"
    if are_one_person(session, asked_by, actor):
        return (
            f"was asked for by {person_of(asked_by)}, who counts as the same person as you: one of you made the account of the "
            "other, or a third one made both. Once another person has confirmed the account that was made, by POST "
            "/v1/users/NAME/confirm, the page Users or `idgraph users confirm NAME`, you are a second person"
        )
    return None


_NEWEST = select(func.max(RequestStepRow.id)).group_by(RequestStepRow.request_id)


def find_requests(
    session: Session,
    *of: ColumnElement[bool],
    wanted: PageRequest | None = None,
    state: State | None = None,
    now: datetime | None = None,
) -> list[KeptRequest]:
    """Requests for which all conditions hold, in one state at a moment, if asked: a page, the newest first,
    or all, the oldest first."""
    newest = and_(RequestStepRow.request_id == RequestRow.id, RequestStepRow.id.in_(_NEWEST))
    query = (
        select(RequestRow, SnapshotRow)
        .join(SnapshotRow, SnapshotRow.version == RequestRow.snapshot_version)
        .outerjoin(RequestStepRow, newest)
        .where(*of, *([] if state is None else [_is_in(state, now)]))
    )
    key = RequestRow.id
    query = query.order_by(key) if wanted is None else paged(query, key, wanted, is_reversed=True)
    found = {row.id: KeptRequest(row, asked, []) for row, asked in session.execute(query)}
    steps = (
        select(RequestStepRow, SnapshotRow)
        .join(SnapshotRow, SnapshotRow.version == RequestStepRow.snapshot_version)
        .where(RequestStepRow.request_id.in_(found))
        .order_by(RequestStepRow.id)
    )
    for step, edit in session.execute(steps):
        found[step.request_id].steps.append((step, edit))
    return list(found.values())


def _is_in(state: State, now: datetime | None) -> ColumnElement[bool]:
    """`KeptRequest.state`, in SQL."""
    action, until = RequestStepRow.action, RequestStepRow.until
    match state:
        case "waits":
            return or_(action.is_(None), action == "replied")
        case "granted":
            return and_(action == state, until > now)
        case "ended":
            return or_(action == state, and_(action == "granted", until <= now))
        case _:
            return action == state


def _logged(kind: str) -> Kind:
    return "grant" if kind in GRANTS else cast(Kind, kind)
