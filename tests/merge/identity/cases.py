"""Acceptance cases of identity resolution, as data: rules, events, pins and the persons that must come out."""

from __future__ import annotations

from typing import Any

from idgraph.model.identity_events import Simulated
from merge.identity.resolve import Resolution
from merge.identity.rules import Rules
from merge.identity.simulation import resolve_seen, seen_events


def run(case: dict[str, Any]) -> Resolution:
    document = Simulated.model_validate(case)
    rules = Rules(document.rules)
    return resolve_seen(rules, seen_events(rules, document.events), document.pins)
