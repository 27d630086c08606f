"""`make bench`: every figure beside its peer or limit; a table for people, JSON in `benchmarks/results/`."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import latency, stages, throughput
from benchmarks.detection import measure as measure_detection
from benchmarks.erasure import FRAGMENTS
from benchmarks.erasure import measure as measure_erasure
from benchmarks.index import measure as measure_index
from benchmarks.keys import measure as measure_keys
from benchmarks.machine import machine
from benchmarks.mapping import measure as measure_mapping
from benchmarks.policies import measure as measure_policies
from benchmarks.sealing import measure as measure_sealing
from benchmarks.store import measure as measure_store

RESULTS = Path(__file__).with_name("results")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        help="throughput, latency, mapping, stages, store, index, keys, sealing, erasure, detection, policies; all if left out",
    )
    parser.add_argument("--shops", type=int, default=10, help="shops to replay, about 60,000 events each")
    parser.add_argument("--seconds", type=float, default=30, help="how long each latency is watched")
    parser.add_argument(
        "--fragments", type=int, default=FRAGMENTS, help="size of the store to erase from; try 1000000"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="idgraph-bench-") as folder:
        runs: dict[str, Callable[[], dict[str, Any]]] = {
            "throughput": lambda: throughput.measure(Path(folder) / "throughput", arguments.shops),
            "latency": lambda: latency.measure(Path(folder) / "latency", arguments.seconds),
            "mapping": measure_mapping,
            "stages": lambda: stages.measure(Path(folder) / "stages", min(arguments.shops, 2)),
            "store": measure_store,
            "index": measure_index,
            "keys": lambda: measure_keys(Path(folder) / "keys"),
            "sealing": lambda: measure_sealing(
                Path(folder) / "sealing", min(arguments.shops, 4), arguments.fragments
            ),
            "erasure": lambda: measure_erasure(arguments.fragments),
            "detection": measure_detection,
            "policies": measure_policies,
        }
        unknown = set(arguments.names) - set(runs)
        if unknown:
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(runs)}")
        results = {name: runs[name]() for name in arguments.names or runs}
    results["machine"] = machine()
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    file.write_text(json.dumps(results, indent=2) + "\n")
    _print(results)
    Console().print(f"\nas JSON: {file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")


def _print(results: dict[str, Any]) -> None:
    for name, figures in results.items():
        table = Table("figure", "value", title=name, title_justify="left", box=None)
        for figure, value in figures.items():
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else f"{value}"
            table.add_row(figure.replace("_", " "), shown)
        Console().print(table)


if __name__ == "__main__":
    main()
