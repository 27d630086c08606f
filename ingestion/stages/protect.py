"""Sealing what mapped events bring to one fragment, each event's failure its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from idgraph.model.attributes import Reconciliation
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import KeyProviderError, SealError
from idgraph.model.fragments import NO_ENTRIES, Kind, Register
from ingestion.stages.map_output import MappedEvent
from merge.policies import POLICIES
from transforms.privacy.sealing import SealingKey
from transforms.privacy.stored_values import RegisterSealer

FetchedKeys = dict[str, SealingKey] | KeyProviderError
"""The data keys of a chunk's fragments, or why there are none."""


class Sealed(NamedTuple):
    """The sealed registers of an event by path, and the entries of arrays that a policy takes by their elements:
    each has its own sealed value and token, as an element that was stored before it was protected."""

    registers: dict[str, Register]
    entries: Mapping[str, Sequence[Register]] = NO_ENTRIES


class Unsealed(NamedTuple):
    """Why an event is set aside: its values cannot be sealed. `detail` quotes none of them."""

    reason: DeadLetterReason
    detail: str


def has_to_seal(events: Sequence[MappedEvent]) -> bool:
    """Whether something of one of them must be sealed: at least one event, and mostly of the first."""
    return bool(events[0].leaves.to_seal) or any(event.leaves.to_seal for event in events)


def seal_events(
    sealer: RegisterSealer,
    keys: FetchedKeys,
    events: Sequence[MappedEvent],
    present: Mapping[str, Register],
    policies: Mapping[str, Reconciliation],
) -> list[Sealed | Unsealed]:
    """What is sealed of events of one fragment, in their order. Registers that another of the events, or what is
    `present` of the fragment, replaces are left out: sealing is what an event costs most."""
    if not has_to_seal(events):
        return [Sealed({})] * len(events)
    try:
        key = _key(keys, events[0].fragment_id)
        latest = sealer.seal_latest(key, [(each.origin, each.leaves.to_seal) for each in events], present)
        entries = (
            [_entries(sealer, key, event, policies) for event in events] if policies else repeat(NO_ENTRIES)
        )
        sealed: list[Sealed | Unsealed] = [*map(Sealed, latest, entries)]
        key.rest()
        return sealed
    except Exception:
        # Looked for below: what an event that is set aside would have replaced must be sealed after all.
        return [_sealed_alone(sealer, keys, event, policies) for event in events]


def _sealed_alone(
    sealer: RegisterSealer, keys: FetchedKeys, event: MappedEvent, policies: Mapping[str, Reconciliation]
) -> Sealed | Unsealed:
    to_seal = event.leaves.to_seal
    if not to_seal:
        return Sealed({})
    try:
        key = _key(keys, event.fragment_id)
        registers = {what.path: sealer.seal(key, event.origin, what) for what in to_seal}
        return Sealed(registers, _entries(sealer, key, event, policies))
    except (SealError, KeyProviderError) as error:
        return Unsealed(DeadLetterReason.KEY_UNAVAILABLE, str(error))
    except Exception as error:
        # Only the type: the message of a stranger's exception may quote the event.
        return Unsealed(DeadLetterReason.STAGE_CRASHED, type(error).__name__)


def _entries(
    sealer: RegisterSealer, key: SealingKey, event: MappedEvent, policies: Mapping[str, Reconciliation]
) -> Mapping[str, Sequence[Register]]:
    if not policies:
        return NO_ENTRIES
    found: dict[str, Sequence[Register]] = {}
    for what in event.leaves.to_seal:
        if type(what.value) is list and what.path in policies:
            policy = POLICIES[policies[what.path].policy]
            if policy.shares_origins:
                written = policy.entries(Register(event.origin, Kind.PLAIN, what.value))
                elements = [entry.value for entry in written]
                found[what.path] = sealer.seal_elements(key, event.origin, what, elements, policy.bound)
    return found


def _key(keys: FetchedKeys, fragment_id: str) -> SealingKey:
    if isinstance(keys, KeyProviderError):
        raise keys
    return keys[fragment_id]
