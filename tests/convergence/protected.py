"""Protected values, by plain rules."""

from __future__ import annotations

import json

from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot
from tests.convergence.expected import leaves

_PLACES = {"u": ("u", "id"), "d": ("d", "id"), "m": ("m", "id")}
"""Where specs write what stands elsewhere in a payload."""


def is_protected(path: str, snapshot: MetadataSnapshot) -> bool:
    """By the nearest attribute that stands there or above, or by any below."""
    levels = {each.path: each.is_protected for each in snapshot.attributes}
    above = [each for each in levels if f"{path}.".startswith(f"{each}.")]
    if above and levels[max(above, key=len)]:
        return True
    return any(is_sealed and each.startswith(f"{path}.") for each, is_sealed in levels.items())


def needs_a_key(record: RawRecord, snapshot: MetadataSnapshot) -> bool:
    """Whether some value of a readable record is sealed; a null is none."""
    payload = json.loads(record.value)
    return any(
        value is not None and is_protected(".".join(path), snapshot)
        for key, below in payload.items()
        for path, value in leaves(below, _PLACES.get(key, (key,)))
    )
