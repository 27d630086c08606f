"""`idgraph specs`: mapping specs in the metadata service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands import spec_folder
from idgraph.app.commands.context import JobWho, JobWhy, Json, Why, origin_of, settings_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import print_json, print_listing, report_warnings
from idgraph.model.errors import NotFoundError, SpecError
from idgraph.model.text import visible_lines

if TYPE_CHECKING:
    from idgraph.model.records import SpecRecord

commands = typer.Typer(no_args_is_help=True, help="Mapping specs in the metadata service.")

_COLUMNS: dict[str, Callable[[SpecRecord], str]] = {
    "name": lambda spec: spec.name,
    "latest": lambda spec: str(spec.latest_version),
    "active": lambda spec: str(spec.active_version or "-"),
    "source": lambda spec: spec.document.source,
    "event type": lambda spec: spec.document.event_type,
    "description": lambda spec: spec.document.description,
}


@commands.command("apply")
def apply_specs(
    context: typer.Context,
    files: list[Path],
    reason: Why = "",
    allow_failing_cases: spec_folder.Nevertheless = False,
) -> None:
    """Save spec documents as new versions; one with status `active` is in force at once.

    An unchanged spec makes no new version, and one with a test case that fails is not put in force.
    """
    from metadata_service.documents.reading import (
        locate_in,
        read_definition,
        refused_by_service,
        unknown_source,
    )

    sources = settings_of(context).event_sources()
    definitions = [(file, read_definition(file)) for file in files]
    with wiring.metadata_client(settings_of(context)) as client:
        known = sources.names
        if known and not sources.are_all and (answer := client.snapshot()) is not None:
            known |= {each.source for each in answer.snapshot.attributes if each.source}
        for file, definition in definitions:
            report_warnings(file, locate_in(file, unknown_source(definition.source, known)))
            before = client.get_spec(definition.name)
            try:
                saved = client.put_spec(definition, reason, allow_failing_cases=allow_failing_cases)
            except SpecError as error:
                raise refused_by_service(file, error) from None
            is_new = before is None or saved.latest_version > before.latest_version
            active = f"version {saved.active_version} is active" if saved.active_version else "none is active"
            print(
                f"{saved.name}: version {saved.latest_version} {'saved' if is_new else 'unchanged'}, {active}"
            )


@commands.command("list")
def list_specs(context: typer.Context, as_json: Json = False) -> None:
    """List the specs: latest and active version, source and event type."""
    with wiring.metadata_client(settings_of(context)) as client:
        found = client.list_specs()
        print_listing(found, as_json, _COLUMNS)


@commands.command("show")
def show_spec(
    context: typer.Context,
    name: str,
    version: Annotated[int | None, typer.Option(help="Default: the latest.")] = None,
) -> None:
    """Print a spec document as JSON, ready to edit and apply."""
    from idgraph.model.text import name_hint

    with wiring.metadata_client(settings_of(context)) as client:
        summary = client.get_spec(name)
        document = (
            client.get_spec_version(name, version)
            if version is not None
            else summary.document
            if summary
            else None
        )
        if document is None:
            close = name_hint(name, (spec.name for spec in client.list_specs())) if summary is None else None
            raise NotFoundError(f"no such spec: {name}{f' ({close})' if close else ''}")
        print(visible_lines(document.model_dump_json(indent=2, exclude={"version", "created"})))


@commands.command("health")
def show_health(context: typer.Context, as_json: Json = False) -> None:
    """Show the use of each active spec by source: events (about), events set aside, last use, and the number of fields of the
    input that it does not read. Then the sources with events that no spec maps.

    With --json: one object with `specs`, which name these fields, and `unmapped`.
    """
    with wiring.metadata_client(settings_of(context)) as client:
        specs, unmapped = client.spec_health()
        if as_json:
            print_json(
                {
                    "specs": [each.model_dump(mode="json") for each in specs],
                    "unmapped": [each.model_dump(mode="json") for each in unmapped],
                }
            )
            return
        for each in specs:
            for use in each.uses:
                rest = f"{use.events:,} events, {use.errors:,} set aside, last {use.last_used:%Y-%m-%d %H:%M}"
                print(
                    f"{each.name}@{each.version} {use.source}: about {rest}, {len(use.unread)} fields not read"
                )
            if not each.uses:
                print(f"{each.name}@{each.version}: not used yet")
        for source in unmapped:
            print(f"{source.source}: about {source.events:,} events that no spec maps")


@commands.command("preview")
def preview_spec(
    context: typer.Context,
    file: Path,
    sample: Annotated[
        int, typer.Option(min=1, max=20_000, help="Look at so many events, drawn at random.")
    ] = 2000,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Count on events with whose protected values it computes.")
    ] = False,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Show what a spec would make of events that the flow has read, beside what is in force; it changes nothing.

    It reads the source's own files again: events changed, attributes added, removed and retyped, new errors, what would be
    written in plain text, and persons merged or split. With fewer events than --sample the numbers are exact; otherwise
    each has its error at 95 % confidence. Exit code 1: it would expose a protected value, or make new errors.
    """
    from idgraph.app.jobs.spec_preview import previewing, print_preview, spec_preview_document
    from idgraph.app.jobs.view import run_shown
    from metadata_service.documents.reading import read_definition

    definition = read_definition(file)
    with previewing(settings_of(context), definition, sample, reveal) as (runner, job):
        run_shown(runner, job, origin_of(who, why))
    if as_json:
        print_json(spec_preview_document(job))
    else:
        print_preview(job)
    if job.effect.is_harmful:
        raise typer.Exit(Exit.FAILED)


@commands.command("activate")
def activate_spec(
    context: typer.Context,
    name: str,
    version: Annotated[int | None, typer.Option(help="Default: the latest.")] = None,
    reason: Why = "",
    allow_failing_cases: spec_folder.Nevertheless = False,
) -> None:
    """Activate a version of a spec."""
    with wiring.metadata_client(settings_of(context)) as client:
        saved = client.activate(name, version, reason, allow_failing_cases)
        print(f"{name}: version {saved.active_version} is active")


@commands.command("retire")
def retire_spec(context: typer.Context, name: str, reason: Why = "") -> None:
    """Retire a spec. Events that only it mapped become dead letters, which can be replayed."""
    with wiring.metadata_client(settings_of(context)) as client:
        client.retire(name, None, reason)
        print(f"{name}: retired")


for command in (spec_folder.pull, spec_folder.diff, spec_folder.push):
    commands.command()(command)
