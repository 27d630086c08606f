"""`idgraph users`: persons who sign in to the pages. Works on the database of the metadata service; the service need
not run."""

from __future__ import annotations

from typing import Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import Json
from idgraph.app.commands.tokens import metadata_database
from idgraph.app.terminal import print_records

commands = typer.Typer(no_args_is_help=True, help="Persons who sign in to the pages of the metadata service.")

Name = Annotated[str, typer.Argument(help="The name with which the person signs in; the history has it.")]


@commands.command()
def add(
    context: typer.Context,
    name: Name,
    role: Annotated[str, typer.Option(help="viewer, analyst, publisher, admin or privacy.")] = "viewer",
    clearance: Annotated[
        int, typer.Option(min=0, max=100, help="The highest authorization level that they read.")
    ] = 0,
    reveal: Annotated[bool, typer.Option("--reveal", help="They may open protected values.")] = False,
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="A right in the profile service besides those of the role."),
    ] = None,
) -> None:
    """Make an account, and print its password once, on standard output. The person can change it."""
    from pydantic import ValidationError

    from metadata_service.storage.users import PersonRights, add_user

    with metadata_database(context) as database:
        stated = {"role": role, "clearance": clearance, "may_reveal": reveal, "scopes": scopes or []}
        try:
            rights = PersonRights.model_validate(stated)
        except ValidationError as error:
            wrong = error.errors()[0]
            raise typer.BadParameter(f"{wrong['loc'][0]}: {wrong['msg']}") from None
        with database.write(wiring.local_user()) as edit:
            password = add_user(edit, name, rights)
        print(password)


@commands.command("list")
def list_users(context: typer.Context, as_json: Json = False) -> None:
    """List persons by name, with role, clearance and state."""
    from idgraph.web.cursors import PageRequest
    from metadata_service.storage.users import list_users as listed

    with metadata_database(context) as database, database.read() as session:
        found = [each.model_dump(mode="json") for each in listed(session, PageRequest(None, 100_000)).items]
        titles = (
            *("name", "role", "clearance", "may_reveal", "sign_in", "seen", "disabled", "is_locked"),
            *("made_by", "confirmed_by"),
        )
        print_records(found, titles, as_json)


@commands.command()
def disable(
    context: typer.Context,
    name: Name,
    enable: Annotated[bool, typer.Option("--enable", help="Let the person in again.")] = False,
) -> None:
    """Disable an account; its sessions and keys end at once."""
    from metadata_service.storage.users import change_user

    with metadata_database(context) as database:
        with database.write(wiring.local_user()) as edit:
            change_user(edit, name, None, not enable)
        print(f"{name} is {'enabled' if enable else 'disabled'}")


@commands.command()
def reset(context: typer.Context, name: Name) -> None:
    """Make a new password and print it once, on standard output. It ends a lock and all sessions."""
    from metadata_service.storage.users import reset_password

    with metadata_database(context) as database:
        with database.write(wiring.local_user()) as edit:
            password = reset_password(edit, name)
        print(password)


@commands.command()
def confirm(context: typer.Context, name: Name) -> None:
    """Say that an account made over HTTP belongs to a person of its own. Until then it counts in approvals as the account
    that made it or reset its password."""
    from metadata_service.storage.users import confirm_user

    with metadata_database(context) as database:
        with database.write(wiring.local_user()) as edit:
            row = confirm_user(edit, name)
        print(
            f"{name} is a person of its own" + (f", as {row.confirmed_by} said" if row.confirmed_by else "")
        )
