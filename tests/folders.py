"""Folders for tests that write thousands of times and are not about power cuts: to wait for a disk takes most of their
time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder that needs no disk, where there is such a place; for few small files."""
    return tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None)
