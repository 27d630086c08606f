"""Which offsets a flow's query has taken, as its checkpoint reports them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

Offsets = dict[str, dict[int, int]]
"""By topic and partition, the offset after the last that was taken."""


class OffsetRange(NamedTuple):
    """Offsets of a partition, from `since` to before `until`. A partition that came meanwhile begins at its first
    offset, which nobody noted: None."""

    topic: str
    partition: int
    since: int | None
    until: int

    def records(self) -> int:
        """About how many: offsets that hold none, such as a transaction's end, count too."""
        return self.until - (self.since or 0)


def ranges_of(checkpoint: Path, number: int) -> list[OffsetRange] | None:
    """The offsets of micro-batch `number`. None if it cannot be determined."""
    until = _read(checkpoint / "offsets" / str(number))
    since = _read(checkpoint / "offsets" / str(number - 1) if number else checkpoint / "sources" / "0" / "0")
    if until is None or since is None:
        return None
    found = (
        OffsetRange(topic, partition, since.get(topic, {}).get(partition), offset)
        for topic, partitions in until.items()
        for partition, offset in partitions.items()
    )
    return [each for each in found if each.records() > 0]


def planned(checkpoint: Path, number: int) -> Offsets | None:
    """The offsets after micro-batch `number`, done or not."""
    return _read(checkpoint / "offsets" / str(number))


def taken(checkpoint: Path) -> Offsets | None:
    """The offsets after the last micro-batch that is done; None if there is none or it is no flow from Kafka."""
    done = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdecimal()]
    return _read(checkpoint / "offsets" / str(max(done))) if done else None


def _read(file: Path) -> Offsets | None:
    """The last line of a file of Spark's: offsets of the one source that a flow from Kafka has."""
    try:
        reported: Any = json.loads(file.read_bytes().splitlines()[-1])
        return {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in reported.items()
        }
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        return None
