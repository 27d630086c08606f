"""`idgraph attributes`: attribute metadata in the metadata service."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app import wiring
from app.commands.context import Json, Why, settings_of
from app.exits import Exit, told
from app.output import counted, print_listing

if TYPE_CHECKING:
    from model.attributes import AttributeMetadata

commands = typer.Typer(no_args_is_help=True, help="Attribute metadata: find, show, change.")


def _proposed(attribute: AttributeMetadata) -> str:
    proposal = attribute.proposal
    return "-" if proposal is None else f"{proposal.kind} {proposal.confidence:.0%}"


_COLUMNS: dict[str, Callable[[AttributeMetadata], str]] = {
    "path": lambda attribute: attribute.path,
    "type": lambda attribute: attribute.data_type,
    "status": lambda attribute: attribute.status,
    "encryption": lambda attribute: attribute.encryption,
    "proposal": _proposed,
    "source": lambda attribute: attribute.source or "-",
    "conflicts": lambda attribute: ", ".join(sorted({each.data_type for each in attribute.conflicts})) or "-",
}


@commands.command("search")
def search_attributes(
    context: typer.Context,
    words: Annotated[str, typer.Argument(help="Words in path, name or description.")] = "",
    source: Annotated[str | None, typer.Option(help="Only attributes first sent by this source.")] = None,
    status: Annotated[str | None, typer.Option(help="discovered, active or retired.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """Find attributes in the catalogue, also those that nobody declared."""
    filters = {name: value for name, value in (("source", source), ("status", status)) if value}
    with told(), wiring.metadata_client(settings_of(context)) as client:
        found = [a for _, a in zip(range(limit), client.search_attributes(words, **filters), strict=False)]
        print_listing(found, as_json, _COLUMNS)


@commands.command("show")
def show_attribute(context: typer.Context, path: str) -> None:
    """Print all that is known of an attribute, as JSON."""
    with told(), wiring.metadata_client(settings_of(context)) as client:
        found = client.get_attribute(path)
        if found is None:
            print("no such attribute", file=sys.stderr)
            raise typer.Exit(Exit.NOT_FOUND)
        print(found.model_dump_json(indent=2))


@commands.command("apply")
def apply_attributes(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="JSON: a definition or a list of them.")],
    reason: Why = "",
) -> None:
    """Declare or change attributes. Only what changed makes a new version."""
    from app.documents import read_attributes

    with told():
        definitions = [definition for file in files for definition in read_attributes(file)]
        with wiring.metadata_client(settings_of(context)) as client:
            for definition in definitions:
                client.put_attribute(definition, reason)
        print(f"{counted(len(definitions), 'attribute')} applied")
