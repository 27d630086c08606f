"""Waiting for what another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 60.0


def eventually(happened: Callable[[], object]) -> None:
    """Until it happened; fails after a minute."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
