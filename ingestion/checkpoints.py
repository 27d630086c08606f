"""A flow's checkpoint: what Spark wrote of which files were taken, and mending it after a power cut.

Spark renames its files into place without flushing them, so a power cut can leave files that are empty or end too
early, at which Spark refuses to start. What a damaged file told is told again: batches are given again, which
changes nothing of the profiles.
"""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path

from ingestion.durable_files import write_atomically

log = logging.getLogger(__name__)

_VERSION = b"v1"
_COMPACT = ".compact"
_LAST_BYTES = 1 << 16


def query_id(checkpoint: Path) -> str | None:
    """The id of the query that the checkpoint belongs to; None if there is none that can be read."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8").splitlines()[0])["id"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def is_done(checkpoint: Path, number: str) -> bool:
    """Whether Spark has noted that a micro-batch is done."""
    return (checkpoint / "commits" / number).exists()


def mend(checkpoint: Path) -> None:
    """Take back what a power cut left half written. To be called while no flow runs on it. Raises OSError."""
    if not checkpoint.is_dir():
        return
    metadata = checkpoint / "metadata"
    if metadata.exists() and query_id(checkpoint) is None:
        log.warning("%s is damaged; the flow goes on under another id", metadata)
        # Spark refuses a checkpoint that has none.
        write_atomically(metadata, json.dumps({"id": str(uuid.uuid4())}).encode())
    logs = [checkpoint / "offsets", checkpoint / "commits", *checkpoint.glob("sources/*")]
    damaged = [file for folder in logs for file in _numbered(folder) if not _is_whole(file)]
    if not damaged:
        return
    first = min(_number(file) for file in damaged)
    later = [file for folder in logs for file in _numbered(folder) if _number(file) >= first]
    if all(_is_continuous(folder, first) for folder in checkpoint.glob("sources/*")):
        log.warning("%s: damaged from micro-batch %d on; what came since is read again", checkpoint, first)
        for file in later:
            file.unlink()
    else:
        log.warning("%s is damaged: all files are read again", checkpoint)
        _set_aside(checkpoint)


def _set_aside(checkpoint: Path) -> None:
    number = 0
    while (aside := checkpoint.with_name(f"{checkpoint.name}.damaged-{number}")).exists():
        number += 1
    checkpoint.rename(aside)


def _is_continuous(source: Path, end: int) -> bool:
    """Whether what the files before number `end` tell reaches back to the first: each is there, or a later one that
    is there holds all before it."""
    names = {file.name for file in _numbered(source)}
    wanted = end - 1
    while wanted >= 0 and f"{wanted}{_COMPACT}" not in names:
        if str(wanted) not in names:
            return False
        wanted -= 1
    return True


def _numbered(folder: Path) -> list[Path]:
    """The files of one of Spark's logs; others are its temporary ones."""
    if not folder.is_dir():
        return []
    return [file for file in folder.iterdir() if file.name.removesuffix(_COMPACT).isdecimal()]


def _number(file: Path) -> int:
    return int(file.name.removesuffix(_COMPACT))


def _is_whole(file: Path) -> bool:
    # Files of a year's archive are megabytes, and a power cut takes the end.
    with file.open("rb") as stream:
        first = stream.readline(16)
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _LAST_BYTES))
        lines = stream.read().split(b"\n")
    if first.rstrip(b"\n") != _VERSION:
        return False
    # A micro-batch without new files of a source, or a compaction of none, is the version alone.
    return len(lines) == 1 or _is_json(lines[-1] or lines[-2])


def _is_json(line: bytes) -> bool:
    if line == _VERSION:
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
