"""idgraph beside plain PySpark with upserts and Feast with its online store: the same events, durable SQLite each.

`make bench ARGS="peers --shops 10"`; with `--install-feast` the first time. docs/performance.md has the omissions of
the peers, and the effect of order on them.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.flow_run import mib, run_until_done, stored
from benchmarks.peers.order import differences
from benchmarks.peers.process import watched
from benchmarks.product import installed
from benchmarks.workload import clear, write_inbox

FEAST = "feast==0.67.0"
FEAST_ENVIRONMENT = Path(__file__).parents[1] / ".peers" / "feast"
FEAST_SECONDS = 60.0
WAYS = tuple(product(("rows", "documents"), ("driver", "partitions")))


def measure(folder: Path, shops: int, install_feast: bool) -> dict[str, Any]:
    """Events a second from the first micro-batch on, CPU microseconds an event of all processes, peak memory and size
    of the store by peer; then how many values depend on the order of arrival."""
    clear(folder)
    if install_feast:
        _make_feast()
    figures = {"idgraph": _idgraph(folder / "idgraph", shops)}
    events, inbox = figures["idgraph"]["events"], folder / "idgraph" / "inbox"
    for table, writer in WAYS:
        name = f"PySpark, {table}, written by {writer}"
        figures[name] = _plain_spark(inbox, folder / f"{table}-{writer}", events, table, writer)
    figures["Feast, push only"] = _feast(inbox, folder)
    fastest = max(WAYS, key=lambda way: figures["PySpark, {}, written by {}".format(*way)]["events_a_second"])
    figures |= {
        f"order: {name}": found
        for name, found in differences(folder / "order", fastest, feast_python()).items()
    }
    return figures


def feast_python() -> Path | None:
    """The interpreter that has Feast, if it was installed."""
    python = FEAST_ENVIRONMENT / "bin" / "python"
    return python if python.exists() else None


def _make_feast() -> None:
    if feast_python() is None:
        subprocess.run([sys.executable, "-m", "venv", str(FEAST_ENVIRONMENT)], check=True)
    subprocess.run([str(feast_python()), "-m", "pip", "install", "-q", FEAST], check=True)


def _idgraph(folder: Path, shops: int) -> dict[str, Any]:
    with installed(folder) as (config, settings):
        run = run_until_done(config, write_inbox(folder / "inbox", shops))
        sizes = stored(settings)
    return {
        "events": run.events,
        "events_a_second": round(run.events / run.streaming_seconds),
        "cpu_us_an_event": run.cpu_us_an_event_all,
        "peak_mib": round(mib(run.peak.total)),
        "store_mib": mib(sizes["profiles"]),
        "index_and_keys_mib": mib(sum(sizes.values()) - sizes["profiles"]),
    }


def _plain_spark(inbox: Path, folder: Path, events: int, table: str, writer: str) -> dict[str, Any]:
    words = [str(inbox), str(folder), "--table", table, "--writer", writer]
    measured, watch = watched([sys.executable, "-m", "benchmarks.peers.plain_spark", *words])
    return {
        "events": events,
        "events_a_second": round(events / measured["streaming_seconds"]),
        "cpu_us_an_event": round(1e6 * sum(watch.cpu_seconds().values()) / events, 1),
        "peak_mib": round(mib(watch.peak.total)),
        "store_mib": mib(sum(path.stat().st_size for path in folder.glob("profiles.db*"))),
    }


def _feast(inbox: Path, folder: Path) -> dict[str, Any]:
    python = feast_python()
    if python is None:
        return {"missing": "Feast is not installed; run again with --install-feast"}
    mapped = folder / "mapped"
    watched([sys.executable, "-m", "benchmarks.peers.plain_spark", str(inbox), str(mapped), "--mapped"])
    script = Path(__file__).with_name("feast_push.py")
    measured, watch = watched(
        [str(python), str(script), str(mapped), str(folder / "feast"), str(FEAST_SECONDS)]
    )
    return {
        "events": measured["rows"],
        "of": measured["of"],
        "events_a_second": round(measured["rows"] / measured["seconds"]),
        "cpu_us_an_event": round(1e6 * measured["cpu_seconds"] / measured["rows"], 1),
        "peak_mib": round(mib(watch.peak.total)),
        "store_mib": mib(measured["store_bytes"]),
    }
