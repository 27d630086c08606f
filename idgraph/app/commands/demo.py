"""`idgraph demo`: the whole way of example data, in one command."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from idgraph.app.commands.flow import stopping_on_signals


def demo(
    example: Annotated[str, typer.Option(help="retail, security or openstack.")] = "retail",
    directory: Annotated[
        Path | None,
        typer.Option(help="Folder; default .idgraph/demo-EXAMPLE. An earlier demo there is replaced."),
    ] = None,
) -> None:
    """Run an example from events to searchable private profiles, and show a profile.

    It starts a metadata service with the example's specs, and a flow. In a terminal both run until Ctrl-C;
    otherwise the command ends by itself.
    """
    from idgraph.app.demo.walk import run_demo

    for name in ("ingestion", "idgraph.jobs", "idgraph.projection"):
        background = logging.getLogger(name)
        if not background.isEnabledFor(logging.DEBUG):
            # The demo does not show the flow's background work.
            background.setLevel(logging.WARNING)
    with stopping_on_signals() as stop:
        run_demo(example, directory or Path(".idgraph") / f"demo-{example}", stop)
