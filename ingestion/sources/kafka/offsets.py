"""The offsets that a flow's query has taken, as its checkpoint reports them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.files import write_atomically
from ingestion.sources.files.taken import rewrite

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
    since = _read(_begin(checkpoint, number))
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


def before(checkpoint: Path, number: int, topics: Collection[str]) -> Offsets:
    """The offsets at which micro-batch `number` begins in these topics, without partitions for which nobody noted
    them."""
    since = _read(_begin(checkpoint, number)) or {}
    return {topic: since.get(topic, {}) for topic in topics}


def begun(checkpoint: Path) -> Offsets | None:
    """The offsets at which the first micro-batch begins; None if nobody noted them."""
    return _read(_begin(checkpoint, 0))


def begin(checkpoint: Path, offsets: Offsets) -> None:
    """Note where the first micro-batch begins, as Spark's connector for Kafka does. Raises OSError."""
    file = _begin(checkpoint, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, b"v1\n" + json.dumps(offsets).encode() + b"\n")


def leave_out(checkpoint: Path, number: int, topics: Collection[str]) -> None:
    """Take topics out of micro-batch `number` and later ones. For a checkpoint that no query runs on. Raises OSError."""
    for file in _offset_files(checkpoint, number):
        offsets = _read(file) or {}
        kept = {topic: found for topic, found in offsets.items() if topic not in topics}
        if len(kept) < len(offsets):
            _write(file, kept)


def put_back(checkpoint: Path, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Let the next micro-batch begin at these offsets, in partitions that the checkpoint does not have. As `leave_out`."""
    finished = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdecimal()]
    for file in _offset_files(checkpoint, max(finished, default=0)):
        present = _read(file) or {}
        merged = {
            **present,
            **{topic: {**starts, **present.get(topic, {})} for topic, starts in offsets.items() if starts},
        }
        if merged != present:
            _write(file, merged)


def _begin(checkpoint: Path, number: int) -> Path:
    return checkpoint / "offsets" / str(number - 1) if number else checkpoint / "sources" / "0" / "0"


def _offset_files(checkpoint: Path, first: int) -> Iterable[Path]:
    """Those with the ends of micro-batches from `first` on, and that with the beginning of the first of all."""
    ends = (checkpoint / "offsets").glob("*")
    found = [file for file in ends if file.name.isdecimal() and int(file.name) >= first]
    begin = _begin(checkpoint, 0)
    return [*found, *([begin] if begin.exists() else [])]


def _write(file: Path, offsets: Mapping[str, Mapping[int, int]]) -> None:
    *head, _ = file.read_bytes().splitlines()
    content = json.dumps(
        {topic: {str(each): at for each, at in found.items()} for topic, found in offsets.items()}
    )
    rewrite(file, b"\n".join([*head, content.encode()]))


def _read(file: Path) -> Offsets | None:
    """The last line of a file of Spark's: offsets of the one source that a flow from Kafka has."""
    try:
        offsets: Any = json.loads(file.read_bytes().splitlines()[-1])
        return {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in offsets.items()
        }
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        return None
