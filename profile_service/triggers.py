"""Triggers and their ledgers as callers see them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from idgraph.model.callers import Caller
from idgraph.model.triggers import Outcome, TriggerDocument
from idgraph.web.refusals import UnknownSubjectError
from profile_service.link_documents import time_text
from profile_service.service import ProfileService
from profile_service.trigger_ledger import TriggerLedger


class TriggerLine(BaseModel):
    """The outcome of a crossing."""

    id: str = Field(description="Of the delivery; the receiver has it as `webhook-id`.")
    version: int = Field(description="Of the trigger.")
    profile: str = Field(description="The profile's id; `~` and a keyed hash where it is gone.")
    crossed_at: str
    at: str = Field(description="Moment of the outcome.")
    outcome: Outcome
    reason: str
    until: str | None = Field(description="The end of quiet hours that it is held for.")


def triggers_of(service: ProfileService, caller: Caller) -> list[TriggerDocument]:
    """The triggers in force whose segment exists for the caller, by name."""
    visible = service.reader(caller).segments(has_nameless=True)
    triggers = service.following.edition().snapshot.triggers
    return sorted((each for each in triggers if each.segment in visible), key=lambda each: each.name)


def ledger_of(service: ProfileService, caller: Caller, name: str, limit: int) -> dict[str, Any]:
    """The newest lines of a trigger's ledger, as JSON has them. Raises UnknownSubjectError, StoreError."""
    if all(each.name != name for each in triggers_of(service, caller)):
        raise UnknownSubjectError("there is no such trigger")
    lines = [] if service.documents is None else TriggerLedger(service.documents).lines(name, limit)
    shown = service.history(service.reader(caller)).shown(
        [(bytes.fromhex(each.profile), each.crossed_ms) for each in lines]
    )
    items = [
        {
            "id": line.id,
            "version": line.version,
            "profile": profile,
            "crossed_at": time_text(line.crossed_ms),
            "at": time_text(line.at_ms),
            "outcome": line.outcome,
            "reason": line.reason,
            "until": None if line.until_ms is None else time_text(line.until_ms),
        }
        for line, profile in zip(lines, shown, strict=True)
    ]
    return {"items": items}
