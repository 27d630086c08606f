"""The cost of reconciliation policies: one more event joined to a fragment, by the number of events before.

CPU microseconds and bytes; `python -m benchmarks policies`.
"""

from __future__ import annotations

import time
from typing import Any

from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp
from merge.fragments import FragmentState

_ROUNDS = 7
_SPEC = SpecRef("shop-segment", 1)
_NAME = Identifier("user_id", "1")


def measure() -> dict[str, Any]:
    """By policy and number of events: what a join takes, and how large the state is."""
    figures: dict[str, Any] = {}
    for policy in ReconciliationPolicy:
        for events in (10, 1000, 10_000):
            state = _state(policy, events)
            figures[f"{policy}, {events} events"] = {
                "cpu_us_a_join": round(1e6 * min(_join(state, policy, events) for _ in range(_ROUNDS)), 1),
                "bytes": len(state),
            }
    return figures


def _state(policy: ReconciliationPolicy, events: int) -> bytes:
    state = FragmentState()
    for number in range(events):
        state.apply(_change(policy, number))
    state.normalise()
    return state.encode()


def _join(data: bytes, policy: ReconciliationPolicy, events: int) -> float:
    change = FragmentState()
    change.apply(_change(policy, events + 1))
    started = time.process_time()
    state = FragmentState.decode(data)
    state.join(change)
    state.normalise()
    state.encode()
    return time.process_time() - started


def _change(policy: ReconciliationPolicy, number: int) -> FragmentChange:
    event = f"{number:08x}-9fb4-4031-93df-ab2c8311745e"
    origin = Origin(Stamp(0, 1_709_251_200_000 + number, "segment", event), _SPEC)
    written = {"spending": Register(origin, Kind.PLAIN, number * 7 % 1000 + 0.25)}
    policies = (
        {} if policy is ReconciliationPolicy.LATEST else {"spending": Reconciliation(policy, ("segment",))}
    )
    return FragmentChange("user_id:1", origin, written, (_NAME,), None, policies)
