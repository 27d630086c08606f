"""`make bench`: every figure beside its peer or limit; a table for people, JSON in `benchmarks/results/`."""

# ruff: noqa: ARG005 - each takes both: a folder of its own, and what was reported
from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import capacity, idle, latency, profiles, stages, throughput
from benchmarks.behaviour import measure as measure_behaviour
from benchmarks.decryptor import measure as measure_decryptor
from benchmarks.detection import measure as measure_detection
from benchmarks.erasure import measure as measure_erasure
from benchmarks.identity import from_scratch, known, projecting, quality, speed
from benchmarks.index import measure as measure_index
from benchmarks.keys import measure as measure_keys
from benchmarks.machine import machine
from benchmarks.mapping import measure as measure_mapping
from benchmarks.modules import measure as measure_modules
from benchmarks.peers.comparison import measure as measure_peers
from benchmarks.policies import measure as measure_policies
from benchmarks.reindex import measure as measure_reindex
from benchmarks.scale import attributes, discovered, files, fragments, hot, memory, outages, pages, specs
from benchmarks.sealing import measure as measure_sealing
from benchmarks.sizes import measure as measure_sizes
from benchmarks.store import measure as measure_store

RESULTS = Path(__file__).with_name("results")

Benchmark = Callable[[Path, argparse.Namespace], dict[str, Any]]

BENCHMARKS: dict[str, Benchmark] = {
    "throughput": lambda folder, arguments: throughput.measure(folder, arguments.shops),
    "latency": lambda folder, arguments: latency.measure(folder, arguments.seconds),
    "idle": lambda folder, arguments: idle.measure(folder, arguments.seconds),
    "mapping": lambda folder, arguments: measure_mapping(),
    "stages": lambda folder, arguments: stages.measure(folder, min(arguments.shops, 2)),
    "modules": lambda folder, arguments: measure_modules(folder),
    "store": lambda folder, arguments: dict(measure_store()),
    "behaviour": lambda folder, arguments: measure_behaviour(folder),
    "dynamodb": lambda folder, arguments: _dynamodb(arguments.fragments or 2_000),
    "kafka": lambda folder, arguments: _kafka(folder, min(arguments.shops, 5), arguments.seconds),
    "pulsar": lambda folder, arguments: _pulsar(folder, min(arguments.shops, 5), arguments.seconds),
    "production": lambda folder, arguments: _production(
        folder, min(arguments.shops, 5), arguments.seconds, arguments.rate
    ),
    "index": lambda folder, arguments: dict(measure_index()),
    "identity": lambda folder, arguments: {
        **quality.measure(arguments.data),
        **speed.measure(folder, arguments.fragments or 100_000),
    },
    "identity-known": lambda folder, arguments: known.measure(folder, arguments.shops),
    "identity-flow": lambda folder, arguments: known.measure_flow(folder, min(arguments.shops, 10)),
    "identity-speed": lambda folder, arguments: projecting.measure(folder, arguments.fragments or 100_000),
    "identity-scratch": lambda folder, arguments: from_scratch.measure(
        folder, arguments.fragments or 100_000
    ),
    "profiles": lambda folder, arguments: profiles.measure(folder, arguments.fragments or 1_000_000),
    "profiles-servers": lambda folder, arguments: profiles.measure_servers(
        folder, arguments.fragments or 2_000
    ),
    "keys": lambda folder, arguments: measure_keys(folder),
    "sealing": lambda folder, arguments: measure_sealing(
        folder, min(arguments.shops, 4), arguments.fragments or 50_000
    ),
    "decryptor": lambda folder, arguments: measure_decryptor(),
    "erasure": lambda folder, arguments: measure_erasure(arguments.fragments or 50_000),
    "reindex": lambda folder, arguments: measure_reindex(arguments.fragments or 20_000),
    "detection": lambda folder, arguments: measure_detection(),
    "policies": lambda folder, arguments: measure_policies(),
    "sizes": lambda folder, arguments: measure_sizes(folder, arguments.sizes),
    "capacity": lambda folder, arguments: capacity.measure(folder, arguments.sizes),
    "peers": lambda folder, arguments: measure_peers(folder, arguments.shops, arguments.install_feast),
    "cluster": lambda folder, arguments: _cluster(folder, arguments.cluster_events),
    "scale-fragments": lambda folder, arguments: fragments.measure(folder, arguments.fragments or 1_000_000),
    "scale-attributes": lambda folder, arguments: attributes.measure(folder),
    "scale-specs": lambda folder, arguments: specs.measure(folder),
    "scale-discovered": lambda folder, arguments: discovered.measure(folder),
    "scale-pages": lambda folder, arguments: pages.measure(folder),
    "scale-files": lambda folder, arguments: files.measure(folder, arguments.files),
    "scale-hot": lambda folder, arguments: hot.measure(folder, arguments.shops),
    "scale-memory": lambda folder, arguments: memory.measure(folder, arguments.events),
    "scale-outages": lambda folder, arguments: outages.measure(folder, arguments.rate),
}
SERVERS = ("dynamodb", "kafka", "pulsar", "production", "profiles-servers", "cluster")
"""These start servers of their own, and need the extras `dynamodb`, `elasticsearch`, `kafka` and `pulsar`."""
GROUPS = {"servers": list(SERVERS), "scale": [name for name in BENCHMARKS if name.startswith("scale-")]}
"""Several under one name."""
DEFAULT = [name for name in BENCHMARKS if name not in (*GROUPS["scale"], *SERVERS)]


def _cluster(folder: Path, events: int) -> dict[str, Any]:
    from benchmarks.cluster import measure

    return measure(folder, events)


def _dynamodb(fragments: int) -> dict[str, Any]:
    from benchmarks.dynamodb import measure

    return measure(fragments)


def _kafka(folder: Path, shops: int, seconds: float) -> dict[str, Any]:
    from benchmarks.kafka import measure

    return measure(folder, shops, seconds)


def _pulsar(folder: Path, shops: int, seconds: float) -> dict[str, Any]:
    from benchmarks.pulsar import measure

    return measure(folder, shops, seconds)


def _production(folder: Path, shops: int, seconds: float, rate: int) -> dict[str, Any]:
    from benchmarks.production import measure

    return measure(folder, shops, seconds, rate)


def main() -> None:
    parser = _parser()
    arguments = parser.parse_args()
    names = [name for given in arguments.names or DEFAULT for name in GROUPS.get(given, [given])]
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join([*BENCHMARKS, *GROUPS])}")
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="idgraph-bench-", dir=arguments.folder) as folder:
        results = {name: BENCHMARKS[name](Path(folder) / name, arguments) for name in names}
    results["machine"] = machine()
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    file.write_text(json.dumps(results, indent=2) + "\n")
    _print(results)
    Console().print(f"\nas JSON: {file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help=f"{', '.join([*BENCHMARKS, *GROUPS])}; all but scale and servers if left out"
    )
    parser.add_argument("--shops", type=int, default=10, help="shops to replay, about 60,000 events each")
    parser.add_argument("--seconds", type=float, default=30, help="how long each latency is watched")
    parser.add_argument("--fragments", type=int, help="size of the store to erase from, and to grow to")
    parser.add_argument(
        "--sizes", type=_numbers, default=(1, 3, 10), help="shops of each size of input, such as 3,10,30"
    )
    parser.add_argument("--files", type=int, default=100_000, help="files that a flow's checkpoint knows")
    parser.add_argument("--events", type=int, default=2_000_000, help="events whose memory is watched")
    parser.add_argument(
        "--cluster-events", type=int, default=4000, help="events of each source, of those that there are"
    )
    parser.add_argument(
        "--rate", type=int, default=1000, help="events a second of production, and beside outages"
    )
    parser.add_argument(
        "--install-feast", action="store_true", help="make Feast's virtual environment for `peers` first"
    )
    parser.add_argument(
        "--data", type=Path, help="folder with `er` and `openstack`, labelled records of `identity`"
    )
    parser.add_argument("--folder", type=Path, help="where to write, on a disk with room enough")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _print(results: dict[str, Any]) -> None:
    """As wide as what is reported; a benchmark of several sizes as one table with a column a size."""
    console = Console(width=None if sys.stdout.isatty() else 250)
    for name, figures in results.items():
        columns = _alike(figures)
        table = Table("figure", *(columns or ["value"]), title=name, title_justify="left", box=None)
        if columns:
            for figure in figures[columns[0]]:
                table.add_row(figure.replace("_", " "), *(_shown(figures[each][figure]) for each in columns))
        else:
            for figure, value in figures.items():
                table.add_row(figure.replace("_", " "), _shown(value))
        console.print(table)


def _alike(figures: dict[str, Any]) -> list[str]:
    """The sizes of a benchmark that reports the same of each; else nothing."""
    kinds = {tuple(value) if isinstance(value, dict) else None for value in figures.values()}
    return list(figures) if len(kinds) == 1 and None not in kinds else []


def _shown(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else f"{value}"


if __name__ == "__main__":
    main()
