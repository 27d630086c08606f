"""`idgraph store`: set up a store of profiles."""

from __future__ import annotations

import typer

from idgraph.app.commands.context import settings_of

commands = typer.Typer(no_args_is_help=True, help="The store of profiles and data keys.")


@commands.command("create")
def create(context: typer.Context) -> None:
    """Create missing DynamoDB tables, with encryption, recovery and protection against deletion. Files in which an
    earlier version kept what all processes share now are moved into them.

    Repeating it is no error.
    """
    from idgraph.app.adapters import stores
    from idgraph.app.adapters.shared_state import move_left

    settings = settings_of(context)
    made = stores.create(settings)
    for name in made:
        print(f"created {name}")
    moved = move_left(settings)
    for name in moved:
        print(f"moved {settings.directory / name} into the tables")
    if not made and not moved:
        print("all tables exist")
