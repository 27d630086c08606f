"""Acceptance cases of identity resolution, as data: rules, events, pins and the persons that must come out."""

from __future__ import annotations

from typing import Any

from idgraph.model.identity_events import Simulated
from merge.identity.resolve import Resolution
from merge.identity.rules import Rules
from merge.identity.simulation import simulate


def run(case: dict[str, Any]) -> Resolution:
    document = Simulated.model_validate(case)
    return simulate(Rules(document.rules), document.events, document.pins)
