"""`idgraph tokens`: tokens of the metadata service. Works on its database; the service need not run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import Json, stored
from idgraph.app.terminal import print_records
from idgraph.model.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from metadata_service.storage.database import Database

commands = typer.Typer(
    no_args_is_help=True, help="Tokens of the metadata service. Each person and each pipeline has its own."
)

Name = Annotated[str, typer.Argument(help="Its owner; the change log names it with each change.")]


@commands.command()
def add(
    context: typer.Context,
    name: Name,
    role: Annotated[
        str | None,
        typer.Option(
            help="Required. For people: viewer, analyst, publisher, admin or privacy; for machines: reader, pipeline, service or profiles."
        ),
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=1, help="Days until it expires. Default: 90 for an admin, else 365.")
    ] = None,
    clearance: Annotated[
        int,
        typer.Option(
            min=0,
            max=100,
            help="For people and the role profiles: the highest authorization level that the token reads.",
        ),
    ] = 0,
    reveal: Annotated[
        bool,
        typer.Option(
            "--reveal", help="For people and the role profiles: the token may open protected values."
        ),
    ] = False,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="For people and the role profiles: the token may handle access requests, erasures and consents (privacy), issue "
            "tokens to persons (persons), preview identity rules (rules), decide on links (links), or operate jobs (operate).",
        ),
    ] = None,
) -> None:
    """Make a token and print it once, on standard output.

    For a caller of the profile service: idgraph tokens add crm --role profiles --clearance 20
    """
    from idgraph.model.callers import DUTIES, Role, Scope

    if role not in list(Role):
        known = "".join(f"\n  {each.value}: {duty}" for each, duty in DUTIES.items())
        wrong = "no role is named" if role is None else f"there is no role {role!r}"
        raise ConfigError(f"{wrong}; give the token the least that does its work, by --role:{known}")

    from metadata_service.storage.tokens import add_token

    with metadata_database(context) as database:
        if unknown := set(scopes or ()) - set(Scope):
            raise typer.BadParameter(
                f"a scope is one of {', '.join(Scope)}, not {', '.join(sorted(unknown))}"
            )
        lifetime = timedelta(days=days) if days else None
        rights = list(map(Scope, scopes or ()))
        with database.write(wiring.local_user()) as edit:
            token = add_token(edit, name, Role(role), lifetime, clearance, reveal, rights)
        print(token)


@commands.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List tokens by name, with role and dates; never the tokens themselves."""
    from metadata_service.storage.tokens import list_tokens as listed

    with metadata_database(context) as database:
        found = [token._asdict() for token in listed(database)]
        titles = ("name", "role", "clearance", "may_reveal", "scopes", "created", "expires", "revoked")
        print_records(found, titles, as_json)


@commands.command()
def revoke(context: typer.Context, name: Name) -> None:
    """Revoke a token at once."""
    from metadata_service.storage.tokens import revoke_token

    with metadata_database(context) as database:
        revoke_token(database, name, wiring.local_user())
        print(f"the token of {name} is revoked")


@contextmanager
def metadata_database(context: typer.Context) -> Iterator[Database]:
    """The service's database. Its refusals do not mean that the service is away."""
    from idgraph.app.metadata_database import opened_metadata_database
    from idgraph.model.errors import MetadataError, RefusedError
    from idgraph.web.refusals import UnknownSubjectError

    settings = stored(context)
    wiring.prepare_directory(settings)
    try:
        with opened_metadata_database(settings) as database:
            yield database
    except UnknownSubjectError as error:
        raise NotFoundError(str(error)) from None
    except MetadataError as error:
        raise RefusedError(str(error)) from None
