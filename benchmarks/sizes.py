"""Bytes, CPU, memory, and bytes per fragment for a million events at several sizes of input, in one table.

`make bench ARGS="sizes --sizes 3,10,30"`
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.flow_run import mib, resident_mib, run_until_done, stored
from benchmarks.product import installed
from benchmarks.workload import clear, write_inbox
from idgraph.app import wiring


def measure(folder: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """By number of shops."""
    return {f"{shops} shops": _measured(folder / str(shops), shops) for shops in sizes}


def _measured(folder: Path, shops: int) -> dict[str, Any]:
    with installed(folder) as (config, settings):
        run = run_until_done(config, write_inbox(folder / "inbox", shops))
        kept = stored(settings)
        with wiring.opened(settings) as resources:
            fragments = resources.store.count()
        read = sum(path.stat().st_size for path in (folder / "inbox").rglob("*.jsonl"))
    clear(folder)
    millions = run.events / 1e6
    return {
        "events": run.events,
        "events_a_second": round(run.events / run.streaming_seconds),
        "mib_read_a_million": round(mib(read) / millions),
        "mib_written_a_million": round(mib(sum(run.written_bytes.values())) / millions),
        "mib_kept_a_million": round(mib(sum(kept.values())) / millions),
        "cpu_seconds_a_million": round(sum(run.cpu_seconds.values()) / millions, 1),
        "cpu_seconds_a_million_by_process": {
            kind: round(seconds / millions, 1) for kind, seconds in run.cpu_seconds.items()
        },
        "peak_resident_mib": round(mib(run.peak.total)),
        "peak_resident_mib_by_process": resident_mib(run.peak),
        "fragments": fragments,
        "bytes_a_fragment": {name: round(size / fragments) for name, size in kept.items()},
    }
