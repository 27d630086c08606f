"""`idgraph timeline` and `idgraph behaviour`: what persons did, and what is derived from it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from idgraph.app import metadata_access
from idgraph.app.commands.context import TYPE_VALUE, Json, Why, from_stdin, settings_of
from idgraph.app.terminal import print_json, print_table
from idgraph.model import canonical
from idgraph.model.errors import RefusedError
from idgraph.model.identifiers import given_identifier
from idgraph.model.stamps import read_moment
from idgraph.model.text import escape_control_chars

commands = typer.Typer(
    no_args_is_help=True,
    help="Activities, which leave entries in timelines, and attributes that are derived from these.",
)


_FORMS = "RFC 3339 with an offset, or epoch milliseconds"


def timeline(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(help=TYPE_VALUE, callback=from_stdin)],
    activity: Annotated[
        list[str] | None,
        typer.Option("--activity", help="Of this activity alone; may be repeated.", show_default=False),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help=f"At or after this moment: {_FORMS}.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(help=f"Before this moment: {_FORMS}.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The newest so many.")] = 20,
    as_json: Json = False,
) -> None:
    """Show the entries that a person's events left in the timelines of activities, the newest first. Exit code 3: no profile
    has the identifier.

    With --json: one object per entry, with activity, time (epoch milliseconds), source, event and fields.
    """
    from idgraph.app.entrance import entrance

    text = str(given_identifier(identifier))
    try:
        bounds = [None if each is None else read_moment(each) for each in (since, until)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with entrance(settings_of(context)) as here:
        found = here.timeline(text, activity or [], limit, *bounds)
    if as_json:
        for each in found["items"]:
            print_json(each)
        return
    rows = [
        [_moment(each["time"]), each["activity"], each["source"], _text(each["fields"])]
        for each in found["items"]
    ]
    print_table(["time", "activity", "source", "fields"], rows)
    if found["next"] is not None:
        print("there are earlier ones: --limit")


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _text(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {canonical.encode(value).decode()}" for name, value in fields.items())


@commands.command("list")
def list_definitions(context: typer.Context, as_json: Json = False) -> None:
    """List activities and derived attributes.

    With --json: one object per definition, with `kind` and `document`.
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
        activities, derived = client.activities(), client.derived_attributes()
    if as_json:
        for kind, documents in (("activity", activities), ("derived_attribute", derived)):
            for each in documents:
                print_json({"kind": kind, "document": each.model_dump(mode="json", exclude_unset=True)})
        return
    rows = [["activity", each.name, "", str(each.version), each.status] for each in activities]
    rows += [["derived", each.name, each.path, str(each.version), each.status] for each in derived]
    print_table(["kind", "name", "path", "version", "status"], rows)


@commands.command("apply")
def apply_definitions(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON with lists `activities`, `derived_attributes`, `segments` and `triggers`; `-`: standard input."
        ),
    ],
    reason: Why = "",
    as_json: Json = False,
) -> None:
    """Put activities, derived attributes, segments and triggers in force, each as a new version; an unchanged one makes none.

    Later events leave entries; earlier ones do once `idgraph backfill` reads them again. With --json: one object per
    definition, with `kind`, `name`, `version` and `warnings`.
    """
    from idgraph.app.behaviour_documents import KINDS, read_behaviour
    from metadata_service.documents.reading import refused_by_service

    wanted = read_behaviour(file)
    with metadata_access.metadata_client(settings_of(context)) as client:
        for place, each in wanted.placed():
            try:
                saved = client.put_definition(each, reason)
            except RefusedError as error:
                if error.problem is None or file == Path("-"):
                    raise
                raise refused_by_service(file, error.problem.under(place)) from None
            kind = KINDS[type(each)]
            if as_json:
                print_json({"kind": kind, **saved.model_dump(mode="json")})
                continue
            print(f"{kind.replace('_', ' ')} {saved.name}: version {saved.version}")
            for warning in saved.warnings:
                print(escape_control_chars(f"{file}: {saved.name}: warning: {warning}"), file=sys.stderr)
