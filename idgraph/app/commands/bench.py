"""`idgraph bench`: the benchmarks of the repository, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer

from idgraph.app.exits import Exit
from idgraph.model.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[3]


def bench(context: typer.Context) -> None:
    """Measure idgraph on this machine, each figure beside its peer or limit, like `make bench`.

    `idgraph bench throughput --shops 10` measures the flow, `idgraph bench mapping` the specs beside Java's
    Jolt. Without a name it measures everything, in half an hour. `idgraph bench -- --help` lists all names.
    """
    if not (CHECKOUT / "benchmarks").is_dir():
        raise ConfigError(
            "the benchmarks and their data are not installed: run this in a checkout of idgraph"
        )
    try:
        # A new process: figures must not depend on the modules that this one has loaded.
        measured = subprocess.run(  # noqa: S603 - ours
            [sys.executable, "-m", "benchmarks", *context.args],
            check=False,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    raise typer.Exit(measured.returncode)
