"""`idgraph keys`: the local keyring."""

from __future__ import annotations

from typing import Annotated

import typer

from app import wiring
from app.commands.context import settings_of
from app.exits import told
from app.output import print_json

commands = typer.Typer(no_args_is_help=True, help="The keyring: key-encryption keys of the local provider.")


@commands.command()
def init(context: typer.Context) -> None:
    """Make a keyring. Never replaces one."""
    from sinks.keyring import KeyringFile

    with told():
        settings = settings_of(context)
        wiring.prepare_directory(settings)
        KeyringFile.create(settings.keyring_file())
        print(
            f"made {settings.keyring_file()}; keep a copy in a safe place: without it nothing protected can be read"
        )


@commands.command()
def add(context: typer.Context) -> None:
    """Add a key-encryption key, which new data keys are wrapped by from now on."""
    from sinks.keyring import KeyringFile

    with told():
        version = KeyringFile(settings_of(context).keyring_file()).add()
        print(f"version {version} is current")


@commands.command("list")
def list_keys(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a key.")] = False,
) -> None:
    """List key-encryption keys: version, date and status, never the keys."""
    from sinks.keyring import KeyringFile

    with told():
        for key in KeyringFile(settings_of(context).keyring_file()).versions():
            if as_json:
                print_json({"version": key.version, "created": key.created, "status": key.status})
            else:
                print(f"{key.version}  {key.created}  {key.status}")
