"""`idgraph triggers`: which there are, and what came of who entered and left their segments."""

from __future__ import annotations

from typing import Annotated

import typer

from idgraph.app import metadata_access
from idgraph.app.commands.context import Json, settings_of
from idgraph.app.terminal import print_json, print_table

commands = typer.Typer(
    no_args_is_help=True, help="Messages to webhooks and topics about who enters and leaves segments."
)


@commands.command("list")
def list_triggers(context: typer.Context, as_json: Json = False) -> None:
    """List triggers. `idgraph behaviour apply` puts them in force.

    With --json: one trigger per line.
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
        triggers = client.triggers()
    if as_json:
        for each in triggers:
            print_json(each.model_dump(mode="json", exclude_unset=True))
        return
    rows = [
        [
            each.name,
            f"{each.when.change} {each.when.segment or each.when.q or each.when.attribute}",
            each.webhook or f"topic {each.topic}",
            str(each.version),
            each.status,
        ]
        for each in triggers
    ]
    print_table(["name", "when", "receiver", "version", "status"], rows)


@commands.command()
def ledger(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the trigger.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The newest so many.")] = 20,
    as_json: Json = False,
) -> None:
    """Show who entered or left a trigger's segment, and what came of it: fired, held, waiting, suppressed or failed, and why.

    With --json: one object per line, as of `GET /v1/triggers/NAME/ledger`.
    """
    from idgraph.app.entrance import entrance

    with entrance(settings_of(context)) as here:
        items = here.trigger_ledger(name, limit)["items"]
    if as_json:
        for each in items:
            print_json(each)
        return
    rows = [
        [each["at"], each["profile"], each["outcome"], each["reason"] or each["until"] or ""]
        for each in items
    ]
    print_table(["time", "profile", "outcome", "why"], rows)
