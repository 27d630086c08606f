"""Which offsets a flow's query has taken, as its checkpoint tells them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Offsets = dict[str, dict[int, int]]
"""By topic and partition, the offset after the last that was taken."""


def records_of(checkpoint: Path, number: int) -> int | None:
    """About how many records micro-batch `number` has: offsets that hold none, such as a transaction's end, count
    too. None if it cannot be told."""
    until = _read(checkpoint / "offsets" / str(number))
    since = _read(checkpoint / "offsets" / str(number - 1) if number else checkpoint / "sources" / "0" / "0")
    if until is None or since is None:
        return None
    # A partition that came meanwhile begins at its first offset, which is not told.
    return sum(
        offset - since.get(topic, {}).get(partition, 0)
        for topic, partitions in until.items()
        for partition, offset in partitions.items()
    )


def taken(checkpoint: Path) -> Offsets | None:
    """The offsets after the last micro-batch that is done; None if there is none or it is no flow from Kafka."""
    done = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdecimal()]
    return _read(checkpoint / "offsets" / str(max(done))) if done else None


def _read(file: Path) -> Offsets | None:
    """The last line of a file of Spark's: offsets of the one source that a flow from Kafka has."""
    try:
        told: Any = json.loads(file.read_bytes().splitlines()[-1])
        return {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in told.items()
        }
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        return None
