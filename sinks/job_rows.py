"""Jobs as their logs keep them: the fields that all logs write in one way."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime

from idgraph.model.jobs import JobKind, Progress

KEPT = 1000
"""So many jobs are kept; of older ones that have ended a log knows nothing."""

_NUMBERS = ("total", "done", "begun_at", "begun_done")


def encoded(progress: Progress) -> str:
    """JSON without notes, which may name persons: they are kept sealed."""
    return json.dumps({name: getattr(progress, name) for name in (*_NUMBERS, "unit", "counts")})


def decoded(progress: str) -> Progress:
    """What `encoded` made."""
    kept = json.loads(progress)
    return Progress(
        unit=kept.get("unit", "profile"),
        counts=Counter(kept.get("counts", {})),
        **{name: kept.get(name, 0) for name in _NUMBERS},
    )


def running_already(kind: JobKind, job_id: str, who: str, started: int) -> str:
    """The message of AlreadyRunningError."""
    since = datetime.fromtimestamp(started / 1000, UTC).isoformat(timespec="seconds")
    return (
        f"this {kind} is running already (job {job_id}, by {who} since {since}); wait for its end, or stop it by "
        f"`idgraph jobs cancel {job_id}`: the same command resumes it"
    )


def now() -> int:
    """Epoch milliseconds."""
    return int(time.time() * 1000)
