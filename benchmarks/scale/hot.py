"""A hot fragment: one person who gets a tenth of all events, beside the same events spread as they came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.flow_run import mib, run_until_done
from benchmarks.product import installed
from benchmarks.workload import EXAMPLE, clear, write_inbox

HOT_PERSON = "4242424242"
_EACH = 9
"""Each ninth event of web site and app is a tenth of all, orders counted."""

_COUNTED = {"path": "activity.lastEvent", "data_type": "string", "policy": "count"}


def measure(folder: Path, shops: int) -> dict[str, Any]:
    """Events a second and CPU of the flow; with and without an attribute whose policy keeps something of each event."""
    figures: dict[str, Any] = {}
    for policy, attributes in (("latest", []), ("count", [_COUNTED])):
        for heat in ("spread", "hot"):
            figures[f"{policy}, {heat}"] = _run(folder / f"{policy}-{heat}", shops, heat == "hot", attributes)
        spread, hot = figures[f"{policy}, spread"], figures[f"{policy}, hot"]
        figures[f"{policy}, throughput left"] = {
            "by_cpu": round(spread["cpu_us_an_event"] / hot["cpu_us_an_event"], 2),
            "by_clock": round(hot["events_a_second"] / spread["events_a_second"], 2),
        }
    return figures


def _run(folder: Path, shops: int, is_hot: bool, attributes: list[dict[str, Any]]) -> dict[str, Any]:
    folder.mkdir(parents=True)
    declared = folder / "attributes.json"
    declared.write_text(json.dumps([*json.loads((EXAMPLE / "attributes.json").read_bytes()), *attributes]))
    with installed(folder, "", declared) as (config, _):
        run = run_until_done(config, write_inbox(folder / "inbox", shops, change=heated if is_hot else None))
    clear(folder)
    return {
        "events": run.events,
        "events_a_second": round(run.events / run.streaming_seconds),
        "cpu_us_an_event": run.cpu_us_an_event_all,
        "peak_resident_mib": round(mib(run.peak.total)),
    }


def heated(source: str, number: int, event: dict[str, Any]) -> dict[str, Any]:
    """The event, perhaps of the hot person in place of its own; `number` counts the source's events."""
    if source == "orders" or number % _EACH:
        return event
    return event | {"userId" if source == "segment" else "user_id": HOT_PERSON}
