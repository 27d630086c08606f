"""`idgraph serve`: the services, one process each."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from idgraph.app.commands.context import settings_of

commands = typer.Typer(no_args_is_help=True, help="Run one of the services.")


@commands.command("metadata")
def serve_metadata(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Default: from the configured URL.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: from the configured URL.")
    ] = None,
    link: Annotated[bool, typer.Option("--link", hidden=True)] = False,
) -> None:
    """Run the metadata service until Ctrl-C. The first start makes an admin token and prints its path."""
    from idgraph.app import metadata_server

    metadata_server.serve_here(settings_of(context), host, port, link)


@commands.command("profiles")
def serve_profiles(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Default: from the configuration.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: from the configuration.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=64, help="Processes that share the port. One for each core is enough.")
    ] = 1,
    socket: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the profile service until Ctrl-C: look-up and search over HTTP, by clearance.

    Each caller has a token: idgraph tokens add NAME --role profiles --clearance N. The page /docs shows the interface.
    """
    from idgraph.app import profile_server

    command = [sys.executable, "-m", "idgraph", *sys.argv[1:], "--socket"]
    profile_server.serve_here(settings_of(context), host, port, command, processes, socket)
