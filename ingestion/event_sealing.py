"""Sealing what mapped events bring to one fragment, each event's failure its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from model.dead_letters import DeadLetterReason
from model.errors import KeyProviderError, SealError
from model.events import RawRecord
from model.fragments import Origin, Register
from model.identifiers import Identifier
from transforms.register_sealing import RegisterSealer
from transforms.schema import Leaves
from transforms.sealing import SealingKey

FetchedKeys = dict[str, SealingKey] | KeyProviderError
"""The data keys of a chunk's fragments, or why there are none."""


class MappedEvent(NamedTuple):
    """An event that is mapped and waits for its fragment's data key."""

    record: RawRecord
    fragment_id: str
    origin: Origin
    identifiers: tuple[Identifier, ...]
    leaves: Leaves
    scope: str | None


class Unsealed(NamedTuple):
    """Why an event is set aside: its values cannot be sealed. `detail` quotes none of them."""

    reason: DeadLetterReason
    detail: str


def seal_events(
    sealer: RegisterSealer, keys: FetchedKeys, events: Sequence[MappedEvent], present: Mapping[str, Register]
) -> list[dict[str, Register] | Unsealed]:
    """The sealed registers of events of one fragment, in their order. Those that another of the events, or what is
    `present` of the fragment, replaces are left out: sealing is what an event costs most."""
    if not any(event.leaves.to_seal for event in events):
        return [{} for _ in events]
    try:
        key = _key(keys, events[0].fragment_id)
        return [*sealer.seal_latest(key, [(each.origin, each.leaves.to_seal) for each in events], present)]
    except Exception:
        # Looked for below: what an event that is set aside would have replaced must be sealed after all.
        return [_sealed_alone(sealer, keys, event) for event in events]


def _sealed_alone(
    sealer: RegisterSealer, keys: FetchedKeys, event: MappedEvent
) -> dict[str, Register] | Unsealed:
    to_seal = event.leaves.to_seal
    try:
        key = _key(keys, event.fragment_id) if to_seal else None
        return {what.path: sealer.seal(key, event.origin, what) for what in to_seal} if key else {}
    except (SealError, KeyProviderError) as error:
        return Unsealed(DeadLetterReason.KEY_UNAVAILABLE, str(error))
    except Exception as error:
        # Only the type: the message of a stranger's exception may quote the event.
        return Unsealed(DeadLetterReason.STAGE_CRASHED, type(error).__name__)


def _key(keys: FetchedKeys, fragment_id: str) -> SealingKey:
    if isinstance(keys, KeyProviderError):
        raise keys
    return keys[fragment_id]
