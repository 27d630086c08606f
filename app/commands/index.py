"""`idgraph index`: what a search index needs before it is used."""

from __future__ import annotations

import typer

from app.commands.context import settings_of
from app.exits import told

commands = typer.Typer(no_args_is_help=True, help="The search index.")


@commands.callback()
def root() -> None:
    """The search index."""


@commands.command("create")
def create(context: typer.Context) -> None:
    """Make the first index version in Elasticsearch, and the alias for it. Doing it twice is no error."""
    from app import indexes

    with told():
        made = indexes.create(settings_of(context))
        print(f"created {made}" if made else "the index is there")
