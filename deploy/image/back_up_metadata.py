"""Copies the metadata database while the service uses it. Usage: back_up_metadata.py DATABASE FOLDER KEEP"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path


def back_up(database: Path, folder: Path, keep: int) -> Path:
    """A copy named by the time; the newest `keep` copies stay. Raises sqlite3.Error, OSError."""
    os.umask(0o077)
    copy = folder / f"metadata-{datetime.now(UTC):%Y%m%dT%H%M%S}.db"
    part = copy.with_suffix(".part")
    with (
        closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)) as source,
        closing(sqlite3.connect(part)) as target,
    ):
        source.backup(target)
    part.rename(copy)
    for old in sorted(folder.glob("metadata-*.db"))[:-keep]:
        old.unlink()
    return copy


if __name__ == "__main__":
    back_up(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
