"""`idgraph specs`: mapping specs in the metadata service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from idgraph.app import metadata_access
from idgraph.app.commands import spec_folder
from idgraph.app.commands.context import JobWho, JobWhy, Json, Why, origin_of, settings_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import counted, print_json, print_listing, report_warnings
from idgraph.model.errors import NotFoundError, SpecError
from idgraph.model.text import escape_control_chars, visible_lines

if TYPE_CHECKING:
    from idgraph.jobs.spec_preview.job import SpecPreviewJob
    from idgraph.model.records import SpecRecord

commands = typer.Typer(no_args_is_help=True, help="Mapping specs in the metadata service.")

_MOST_PRINTED = 30
"""Changed attributes that are printed for people."""
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
    with metadata_access.metadata_client(settings_of(context)) as client:
        known = sources.names
        if known and not sources.are_all and (answer := client.catalogue()) is not None:
            known |= {each.source for each in answer[0].attributes if each.source}
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
    with metadata_access.metadata_client(settings_of(context)) as client:
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

    with metadata_access.metadata_client(settings_of(context)) as client:
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
    """Show the use of each active spec by source: events (about), events set aside, last use, and the number
    of input fields that it does not read. Then the sources with events that no spec maps.

    With --json: one object with `specs`, which name these fields, and `unmapped`.
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
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
        bool,
        typer.Option("--reveal", help="Also count events if the spec computes with their protected values."),
    ] = False,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Show the effect of a spec on events that the flow has read, beside the one in force; it changes
    nothing.

    It reads the source's own files again. It counts events changed, attributes added, removed and retyped,
    new errors, values written in plain text, and persons merged or split. With fewer events than --sample the
    numbers are exact; otherwise each has its error at 95 % confidence. Exit code 1: it would expose a
    protected value, or make new errors.
    """
    from idgraph.app.jobs.context import run_job
    from idgraph.jobs.preview import PREVIEW, PreviewParameters
    from idgraph.jobs.spec_preview.job import SpecPreviewParameters
    from metadata_service.documents.reading import read_definition

    stated = SpecPreviewParameters(definition=read_definition(file), sample=sample, reveal=reveal)
    parameters = PreviewParameters(spec=stated)
    found, _ = run_job(settings_of(context), PREVIEW, parameters, origin_of(who, why))
    job = cast("SpecPreviewJob", found)
    if as_json:
        print_json(job.document())
    else:
        _print_preview(job.document())
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
    with metadata_access.metadata_client(settings_of(context)) as client:
        saved = client.activate(name, version, reason, allow_failing_cases)
        print(f"{name}: version {saved.active_version} is active")


@commands.command("retire")
def retire_spec(context: typer.Context, name: str, reason: Why = "") -> None:
    """Retire a spec. Events that only it mapped become dead letters, which can be replayed."""
    with metadata_access.metadata_client(settings_of(context)) as client:
        client.retire(name, None, reason)
        print(f"{name}: retired")


def _print_preview(found: dict[str, Any]) -> None:
    """Print the result for people."""
    from idgraph.jobs.spec_preview.sample import MOST_SCANNED_BYTES

    figures = found["figures"]
    read = f"{counted(found['looked_at'], 'event')} looked at of {found['events']:,} in {counted(found['files'], 'file')}"
    if found["files_read"] < found["files"]:
        read += f", of which {found['files_read']:,} were read ({MOST_SCANNED_BYTES >> 20} MiB)"
    print(read + (": exact" if found["is_exact"] else "; errors at 95 % confidence"))
    if not found["looked_at"]:
        print(f"no event of this spec in the files of {', '.join(found['sources'])}")
        return
    if withheld := found["withheld"]["events"]:
        print(f"withheld: {counted(withheld, 'event')}, with whose protected values the spec computes:")
        for place in found["withheld"]["places"]:
            _line(f"  {place}")
        print("--reveal counts on them; the job keeps your name and the reason")
    for name in (
        "events_changed",
        "errors_new",
        "exposed",
        "persons_merged",
        "persons_split",
        "persons_known",
    ):
        if name in figures:
            print(f"{name.replace('_', ' ')}: {_figure(figures[name])}")
    known_by = (found["persons"] or {}).get("known_by", {})
    print("".join(f"  known by {kind}: {number:,}\n" for kind, number in known_by.items()), end="")
    for each in found["errors"]:
        place = each["pointer"] or each["reason"]
        _line(f"  {each['events']:,} at {place}: {each['message']} (such as {each['positions'][0]})")
    changes = found["attributes"]["changes"]
    print(f"attributes: {found['attributes']['added']} added, {found['attributes']['removed']} removed")
    for each in changes[:_MOST_PRINTED]:
        about = each["exposes"] or [each["looks_like"]] if each["change"] in ("exposes", "sensitive") else []
        _line(
            f"  {each['change']} {each['path']}: {each['events']:,} {', '.join(filter(None, about))}".rstrip()
        )
    if len(changes) > _MOST_PRINTED:
        print(f"  and {counted(len(changes) - _MOST_PRINTED, 'attribute')} more: --json has all")
    for kind, number in found["identifiers_opened"].items():
        print(f"identifiers of type {kind} would be stored readable: {number:,}")
    for key, name in (("of", "merged"), ("into", "split")):
        for each in (found["persons"] or {}).get(name, ()):
            _line(f"  {name}: {each['id']} {key} {', '.join(each[key])}")


def _figure(found: dict[str, Any]) -> str:
    error = f" ± {100 * found['error']:.2g} %" if found["error"] else ""
    return f"{found['number']:,} ({100 * found['share']:.3g} %{error})"


def _line(text: str) -> None:
    print(escape_control_chars(text))


for command in (spec_folder.pull, spec_folder.diff, spec_folder.push):
    commands.command()(command)
