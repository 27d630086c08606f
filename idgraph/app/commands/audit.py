"""`idgraph audit`: the log of what was revealed."""

from __future__ import annotations

import typer

from idgraph.app.commands.context import Json, settings_of
from idgraph.app.exits import Exit, error_handler
from idgraph.app.terminal import print_json

commands = typer.Typer(no_args_is_help=True, help="The log of protected values that were revealed over HTTP.")


@commands.callback()
def _group() -> None:
    """A group, although it has one command."""


@commands.command()
def verify(context: typer.Context, as_json: Json = False) -> None:
    """Check that no entry was altered, inserted or removed. Exit code 1: one was.

    Entries cut off at the end cannot be seen in the file alone: note the head, and compare it with the next.
    """
    from idgraph.app.profile_server import audit_file, verify_audit

    with error_handler():
        settings = settings_of(context)
        report = verify_audit(settings)
        if as_json:
            print_json(report._asdict())
        elif report.broken_line is None:
            print(f"{report.entries:,} entries are whole; head {report.head or '-'}")
        else:
            print(
                f"{audit_file(settings)}, line {report.broken_line}: altered, or the one before it was removed"
            )
        if report.broken_line is not None:
            raise typer.Exit(Exit.FAILED)
