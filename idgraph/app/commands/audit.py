"""`idgraph audit`: the log of reveals, and the history of decisions."""

from __future__ import annotations

from pathlib import Path

import typer

from idgraph.app import wiring
from idgraph.app.adapters.shared_state import audit_lines
from idgraph.app.commands.context import Json, stored
from idgraph.app.exits import Exit
from idgraph.app.terminal import print_json

commands = typer.Typer(
    no_args_is_help=True, help="The audit log: reveals and acts, over HTTP and by commands."
)


@commands.callback()
def _group() -> None:
    """A group, although it has one command."""


@commands.command()
def verify(context: typer.Context, as_json: Json = False) -> None:
    """Check that no entry of the log of reveals was altered, inserted or removed. The metadata service's
    history is checked too if it is on this machine. Exit code 1: an entry was altered, inserted or removed.

    Entries cut off at the end of the log cannot be seen in the file alone: note the head, and compare it with
    the next.
    """
    from idgraph.app.adapters.key_providers import ensure_keyring
    from idgraph.app.metadata_server import verify_history

    settings = stored(context)
    place, log = audit_lines(settings).place, None
    if settings.keyring_file().exists() or Path(place).exists():
        ensure_keyring(settings)
        log = wiring.audit_log(settings).verify()
        if log.broken_line is not None:
            # Raises for another keyring, under which every entry seems altered.
            with wiring.opened_keys(settings, own=True):
                pass
    history = verify_history(settings)
    found = {f"{place}, line": log, "history, version": history}
    if as_json:
        print_json((log._asdict() if log else {}) | {"history": history._asdict() if history else None})
    for where, report in found.items():
        if report is None or as_json:
            continue
        if report.broken_line is None:
            print(f"{where.split(',')[0]}: {report.entries:,} entries are whole; head {report.head or '-'}")
        else:
            print(f"{where} {report.broken_line}: altered, or the one before it was removed")
    if any(report and report.broken_line is not None for report in found.values()):
        raise typer.Exit(Exit.FAILED)
