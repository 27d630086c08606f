"""Which files a flow's query has taken, as its checkpoint tells them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

TAIL_BYTES = 1 << 20
"""Every tenth file of the log tells all files that were ever taken, the latest at its end; more of it is not read."""


def files_of(checkpoint: Path, number: int) -> list[Path]:
    """The files that micro-batch `number` takes, as far as they can be told."""
    try:
        entry = json.loads((checkpoint / "offsets" / str(number)).read_bytes().splitlines()[-1])["logOffset"]
        log = checkpoint / "sources" / "0"
        file = log / f"{entry}.compact"
        return list(_paths(file if file.exists() else log / str(entry), entry))
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return []


def _paths(file: Path, entry: int) -> Iterator[Path]:
    with file.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = stream.read().split(b"\n")
    # The first may be the version, or cut.
    for told in map(json.loads, lines[1:]):
        if told["batchId"] == entry:
            yield Path(unquote(told["path"].removeprefix("file:")))
