"""`idgraph serve metadata`, `idgraph specs` and `idgraph attributes`: the admins' side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from app import wiring
from app.commands.context import settings_of
from app.exits import Exit, told
from app.output import counted, print_json, print_table
from model.errors import SpecError

serve = typer.Typer(no_args_is_help=True, help="Run one of the services.")
specs = typer.Typer(no_args_is_help=True, help="Mapping specs in the metadata service.")
attributes = typer.Typer(no_args_is_help=True, help="Attribute metadata: find, show, change.")

Why = Annotated[str, typer.Option("--reason", help="Why; kept with the change.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]


@serve.command("metadata")
def serve_metadata(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Default: from the configured URL.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: from the configured URL.")
    ] = None,
) -> None:
    """Run the metadata service until Ctrl-C. The first start makes an admin token and says where it is."""
    from app import metadata_server

    with told():
        metadata_server.serve_here(settings_of(context), host, port)


@specs.command("apply")
def apply_specs(context: typer.Context, files: list[Path], reason: Why = "") -> None:
    """Save spec documents as new versions; one whose status is `active` is in force at once.

    A spec that did not change makes no new version.
    """
    from app.documents import read_definition, refused_by_service

    with told():
        definitions = [(file, read_definition(file)) for file in files]
        with wiring.metadata_client(settings_of(context)) as client:
            for file, definition in definitions:
                before = client.get_spec(definition.name)
                try:
                    saved = client.put_spec(definition, reason)
                except SpecError as error:
                    raise refused_by_service(file, error) from None
                is_new = before is None or saved.latest_version > before.latest_version
                active = (
                    f"version {saved.active_version} is active" if saved.active_version else "none is active"
                )
                print(
                    f"{saved.name}: version {saved.latest_version} {'saved' if is_new else 'unchanged'}, {active}"
                )


@specs.command("list")
def list_specs(context: typer.Context, as_json: Json = False) -> None:
    """List the specs: latest and active version, source and event type."""
    with told(), wiring.metadata_client(settings_of(context)) as client:
        found = client.list_specs()
        if as_json:
            for spec in found:
                print_json(spec.model_dump(mode="json"))
            return
        print_table(
            ("name", "latest", "active", "source", "event type", "description"),
            [
                (
                    spec.name,
                    str(spec.latest_version),
                    str(spec.active_version or "-"),
                    spec.document.source,
                    spec.document.event_type,
                    spec.document.description,
                )
                for spec in found
            ],
        )


@specs.command("show")
def show_spec(
    context: typer.Context,
    name: str,
    version: Annotated[int | None, typer.Option(help="Default: the latest.")] = None,
) -> None:
    """Print a spec document as JSON, ready to be edited and applied."""
    with told(), wiring.metadata_client(settings_of(context)) as client:
        summary = client.get_spec(name)
        document = (
            client.get_spec_version(name, version)
            if version is not None
            else summary.document
            if summary
            else None
        )
        if document is None:
            print("no such spec", file=sys.stderr)
            raise typer.Exit(Exit.NOT_FOUND)
        print(document.model_dump_json(indent=2, exclude={"version", "created"}))


@specs.command("activate")
def activate_spec(
    context: typer.Context,
    name: str,
    version: Annotated[int | None, typer.Option(help="Default: the latest.")] = None,
    reason: Why = "",
) -> None:
    """Put a version of a spec in force."""
    with told(), wiring.metadata_client(settings_of(context)) as client:
        saved = client.activate(name, version, reason)
        print(f"{name}: version {saved.active_version} is active")


@specs.command("retire")
def retire_spec(context: typer.Context, name: str, reason: Why = "") -> None:
    """Take a spec out of force. Events that only it mapped become dead letters, to be replayed."""
    with told(), wiring.metadata_client(settings_of(context)) as client:
        client.retire(name, None, reason)
        print(f"{name}: retired")


@attributes.command("search")
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
        if as_json:
            for attribute in found:
                print_json(attribute.model_dump(mode="json"))
            return
        print_table(
            ("path", "type", "status", "encryption", "source", "conflicts"),
            [
                (
                    attribute.path,
                    attribute.data_type,
                    attribute.status,
                    attribute.encryption,
                    attribute.source or "-",
                    ", ".join(sorted({conflict.data_type for conflict in attribute.conflicts})) or "-",
                )
                for attribute in found
            ],
        )


@attributes.command("show")
def show_attribute(context: typer.Context, path: str) -> None:
    """Print all that is known of an attribute, as JSON."""
    with told(), wiring.metadata_client(settings_of(context)) as client:
        found = client.get_attribute(path)
        if found is None:
            print("no such attribute", file=sys.stderr)
            raise typer.Exit(Exit.NOT_FOUND)
        print(found.model_dump_json(indent=2))


@attributes.command("apply")
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
