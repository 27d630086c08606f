"""`idgraph store`: set up a store of profiles."""

from __future__ import annotations

import typer

from idgraph.app.commands.context import settings_of

commands = typer.Typer(no_args_is_help=True, help="The store of profiles and data keys.")


@commands.command("create")
def create(context: typer.Context) -> None:
    """Create missing DynamoDB tables, with encryption, recovery and protection against deletion. Repeating it is no error."""
    from idgraph.app.adapters import stores

    made = stores.create(settings_of(context))
    for name in made:
        print(f"created {name}")
    if not made:
        print("all tables exist")
