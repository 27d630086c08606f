"""Python imports this at its start from a folder on its path: the wall clock of driver and workers is then off by so many
seconds as the file says that IDGRAPH_TEST_CLOCK names, if there is one, from one moment to the next. What elapses
(`time.monotonic`) is not changed, as it is not on a machine whose clock is set."""

from __future__ import annotations

import os
import time
from pathlib import Path

_file = os.environ.get("IDGRAPH_TEST_CLOCK")
_time, _time_ns = time.time, time.time_ns


def _off() -> float:
    try:
        return float(Path(_file).read_text()) if _file else 0.0
    except (OSError, ValueError):
        return 0.0


if _file:
    time.time = lambda: _time() + _off()
    time.time_ns = lambda: _time_ns() + int(_off() * 1_000_000_000)
