"""Logs as one JSON object a line, for machines: `idgraph --log-format json`.

`time` (RFC 3339), `level`, `logger`, `message`, and its fields: `batch` and `position` name the micro-batch
and the event it is about. Messages hold no values of events (law 3); of an exception only its type and places
are reported.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.repeating import FIELDS

if TYPE_CHECKING:
    from ingestion.stages.outcomes import BatchReport

BATCHES = "idgraph.batches"
"""The logger of micro-batches and of the events that they set aside. Only reported as JSON: for people there
are other words."""


class JsonFormatter(logging.Formatter):
    """A record as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        config: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            config["error"] = record.exc_info[0].__name__
            config["at"] = [
                f"{Path(frame.filename).name}:{frame.lineno}"
                for frame in traceback.extract_tb(record.exc_info[2])
            ]
        return json.dumps(config)


def is_on() -> bool:
    """Whether messages are written as JSON in this process."""
    return any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers)


def say(message: str, level: int = logging.INFO) -> None:
    """Print a message to the user of a command, on standard error: as it is, or as JSON."""
    if is_on():
        logging.getLogger("idgraph").log(level, message)
    else:
        print(message, file=sys.stderr, flush=True)


def log_batch(report: BatchReport) -> None:
    """A micro-batch, and each event that it set aside, as far as they are reported."""
    log = logging.getLogger(BATCHES)
    if not log.isEnabledFor(logging.INFO) or not report.counts.events:
        return
    counts = report.counts
    fields = {
        "batch": report.batch,
        "seconds": round(report.seconds, 4),
        "attempts": report.attempts,
        "snapshot": report.snapshot_version,
        "events": counts.events,
        "written": counts.written,
        "dead_letters": counts.dead,
    }
    log.info("micro-batch done", extra={FIELDS: fields})
    for each in counts.set_aside:
        about = {
            "batch": report.batch,
            "position": each.position,
            "reason": each.reason,
            "stage": each.stage,
            "dead_letter": each.dead_letter,
        }
        log.warning("event set aside", extra={FIELDS: about})
