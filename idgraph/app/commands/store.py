"""`idgraph store`: what a store of profiles needs before it is used."""

from __future__ import annotations

import typer

from idgraph.app.commands.context import settings_of
from idgraph.app.exits import error_handler

commands = typer.Typer(no_args_is_help=True, help="The store of profiles and data keys.")


@commands.command("create")
def create(context: typer.Context) -> None:
    """Make the DynamoDB tables that are missing, and switch on encryption, recovery and protection against
    deletion for all of them. Doing it twice is no error."""
    from idgraph.app.adapters import stores

    with error_handler():
        made = stores.create(settings_of(context))
        for name in made:
            print(f"created {name}")
        if not made:
            print("all tables are there")
