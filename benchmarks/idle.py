"""Services and a flow without work: the share of a core that each takes, and how soon an event is readable after a pause."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.latency import marked, percentiles, until
from benchmarks.processes import cpu_below
from benchmarks.product import PROGRAM, RunningFlow, installed
from benchmarks.workload import clear
from idgraph.app import wiring
from idgraph.app.publish import publish_lines
from idgraph.app.settings.document import Settings

SETTLING_SECONDS = 15.0
"""From the start, or the last event, until only what is repeated is measured."""
PAUSE_SECONDS = 5.0
ROUNDS = 8


def measure(folder: Path, seconds: float) -> dict[str, Any]:
    """Shares of a core in per cent over so many seconds: of the metadata service alone, with a profile service that
    follows it, and with a flow; and from published to readable after `PAUSE_SECONDS` without events."""
    clear(folder)
    with installed(folder) as (config, settings):
        metadata = _only_child()
        alone = _shares({"metadata": metadata}, seconds)
        with _serving_profiles(config) as profiles:
            followed = _shares({"metadata": metadata, "profiles": profiles}, seconds)
        flow = RunningFlow(config)
        try:
            publish_lines(settings.file_source("segment"), [marked("warm-up")])
            until(lambda: flow.events() > 0, 120)
            beside_flow = _shares({"metadata": metadata, "flow": flow.pid}, seconds)
            after_pause = _after_pauses(settings)
        finally:
            flow.stop()
    return {
        "per_cent_of_a_core_alone": alone,
        "per_cent_of_a_core_with_profile_service": followed,
        "per_cent_of_a_core_with_flow": beside_flow,
        "published_to_readable_after_a_pause": after_pause,
    }


def _only_child() -> int:
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    (found,) = map(int, own.read_text().split())
    return found


def _shares(processes: dict[str, int], seconds: float) -> dict[str, float]:
    """By name of the root, and kind of process where it is not the root itself."""
    time.sleep(SETTLING_SECONDS)
    before, began = {name: cpu_below(root) for name, root in processes.items()}, time.monotonic()
    time.sleep(seconds)
    taken = time.monotonic() - began
    return {
        name if kind == "driver" else f"{name} {kind}": round(
            100 * (used - before[name].get(kind, 0.0)) / taken, 2
        )
        for name, root in processes.items()
        for kind, used in cpu_below(root).items()
    }


@contextmanager
def _serving_profiles(config: Path) -> Iterator[int]:
    process = subprocess.Popen(
        [*PROGRAM, "-c", str(config), "serve", "profiles", "--port", "0"], stderr=subprocess.DEVNULL
    )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _after_pauses(settings: Settings) -> dict[str, float]:
    waits = []
    with wiring.opened(settings) as resources:
        for number in range(ROUNDS):
            time.sleep(PAUSE_SECONDS + number / ROUNDS)
            user = f"late{number}"
            publish_lines(settings.file_source("segment"), [marked(user)])
            began = time.monotonic()
            until(lambda name=f"user_id:{user}": bool(resources.store.read([name])), 60)  # type: ignore[misc]
            waits.append(time.monotonic() - began)
    return percentiles(waits)
