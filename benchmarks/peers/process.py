"""A peer in a process of its own."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from benchmarks.processes import ProcessWatch


def watched(command: list[str]) -> tuple[dict[str, Any], ProcessWatch]:
    """Run a peer to its end; gives the JSON of its last line and what its processes used. Raises RuntimeError."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with ProcessWatch(process.pid) as watch:
        output, complaints = process.communicate()
    if process.returncode:
        causes = [line for line in complaints.splitlines() if line.startswith("Caused by")]
        reason = "\n".join(causes)[-2000:] or complaints[-2000:]
        raise RuntimeError(f"{command[1:4]} ended with exit code {process.returncode}: {reason}")
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{"))), watch
