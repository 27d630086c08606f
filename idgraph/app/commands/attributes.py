"""`idgraph attributes`: attribute metadata in the metadata service."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app import metadata_access
from idgraph.app.commands.context import DryRun, Json, Why, settings_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import counted, print_listing, report_cut, report_warnings
from idgraph.model.errors import ApprovalNeededError, NotFoundError, RefusedError, first_few
from idgraph.model.text import escape_control_chars, visible_lines

if TYPE_CHECKING:
    from idgraph.model.attributes import AttributeMetadata
    from idgraph.model.records import DiscoveryCount, PolicyChangeRecord
    from metadata_service.documents.reading import PlacedAttribute
    from transforms.schema.protection_in_force import ListedAttribute

Number = Annotated[int, typer.Argument(min=1, help="Number in `idgraph attributes changes`.")]

commands = typer.Typer(no_args_is_help=True, help="Attribute metadata: find, show, change.")


_MOST_COMPARED = 5_000
"""Most names to compare with a misspelt one."""

_MOST_COUNTED = 10_000
"""Most unlisted attributes to count: each thousand is one request."""


def _proposed(attribute: AttributeMetadata) -> str:
    proposal = attribute.proposal
    return "-" if proposal is None else f"{proposal.kind} {proposal.confidence:.0%}"


_COLUMNS: dict[str, Callable[[ListedAttribute], str]] = {
    "path": lambda attribute: attribute.path,
    "type": lambda attribute: attribute.data_type,
    "status": lambda attribute: attribute.status,
    "encryption": lambda attribute: attribute.shown_encryption,
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
    proposed: Annotated[
        bool,
        typer.Option(
            "--proposed",
            help="Only attributes with a detector's proposal; open ones unless --status is given.",
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most attributes to list.")] = 50,
    as_json: Json = False,
) -> None:
    """Find attributes in the catalogue, declared or discovered, with the encryption in force."""
    from transforms.schema.protection_in_force import with_protection

    status = status or ("discovered" if proposed else None)
    filters = {name: value for name, value in (("source", source), ("status", status)) if value}
    with metadata_access.metadata_client(settings_of(context)) as client:
        matching = client.search_attributes(words, **filters)
        if proposed:
            matching = (attribute for attribute in matching if attribute.proposal is not None)
        found = list(islice(matching, limit))
        answer = client.snapshot(None, 0) if found else None
        listed = [] if answer is None else with_protection(answer.snapshot, found)
        print_listing(listed, as_json, _COLUMNS)
        rest = sum(1 for _ in islice(matching, _MOST_COUNTED + 1))
        report_cut(len(found), len(found) + min(rest, _MOST_COUNTED), is_least=rest > _MOST_COUNTED)


@commands.command("show")
def show_attribute(context: typer.Context, path: str) -> None:
    """Print an attribute as JSON; `in_force` is its protection, with its origin."""
    from idgraph.model.text import name_hint
    from transforms.schema.protection_in_force import protection_in_force

    with metadata_access.metadata_client(settings_of(context)) as client:
        found = client.get_attribute(path)
        if found is None:
            known = (each.path for each in client.search_attributes(""))
            close = name_hint(path, islice(known, _MOST_COMPARED))
            raise NotFoundError(f"no such attribute: {path}{f' ({close})' if close else ''}")
        answer = client.snapshot(None, 0)
        shown = found.model_dump(mode="json")
        if answer is not None:
            policy, because = protection_in_force(answer.snapshot, path)
            shown["in_force"] = {**policy._asdict(), "because": because}
        print(visible_lines(json.dumps(shown, indent=2, ensure_ascii=False)))


@commands.command("apply")
def apply_attributes(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="JSON: a definition or a list of them.")],
    reason: Why = "",
) -> None:
    """Declare or change attributes. An unchanged definition makes no new version.

    Definitions that the service refuses are listed, and the others applied (exit code 1). An edit that weakens protection
    waits for a second person (exit code 1). New values of a newly protected attribute are sealed within seconds;
    `idgraph seal` seals stored ones.
    """
    from metadata_service.documents.reading import read_attributes

    given = [placed for file in files for placed in read_attributes(file)]
    for placed in given:
        report_warnings(placed.file.file, placed.warnings())
    left = list(given)
    waiting: list[str] = []
    refused: list[tuple[PlacedAttribute, str]] = []
    try:
        with metadata_access.metadata_client(settings_of(context)) as client:
            for placed in given:
                try:
                    client.put_attribute(placed.definition, reason)
                except ApprovalNeededError as error:
                    waiting.append(str(error))
                except RefusedError as error:
                    shown = placed.refused(error.problem) if error.problem else error
                    refused.append((placed, f"error: {shown}"))
                left.remove(placed)
    finally:
        for message in (*waiting, *(message for _, message in refused)):
            print(visible_lines(message), file=sys.stderr)
        missing = ", ".join(each.definition.path for each in (*(each for each, _ in refused), *left))
        if missing and len(given) > 1:
            done = len(given) - len(waiting) - len(refused) - len(left)
            rest = escape_control_chars(missing)
            print(f"{done} of {len(given)} applied; not applied: {rest}", file=sys.stderr)
    if not refused:
        print(f"{counted(len(given) - len(waiting), 'attribute')} applied")
    if waiting or refused:
        raise typer.Exit(Exit.FAILED)


@commands.command("confirm")
def confirm_proposal(context: typer.Context, path: str, reason: Why = "") -> None:
    """Confirm a detector's proposal: the attribute becomes active, protected as its level says."""
    with metadata_access.metadata_client(settings_of(context)) as client:
        found = client.decide_proposal(path, is_confirmed=True, reason=reason)
        print(
            f"{escape_control_chars(found.path)}: active, {found.classification}, encryption {found.encryption}"
        )


@commands.command("dismiss")
def dismiss_proposal(context: typer.Context, path: str, reason: Why = "") -> None:
    """Refuse a detector's proposal: the attribute becomes active and open. Sealed values stay sealed.

    If more than the proposal protects it, this waits for a second person (exit code 1).
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
        found = client.decide_proposal(path, is_confirmed=False, reason=reason)
        print(
            f"{escape_control_chars(found.path)}: active, {found.classification}, encryption {found.encryption}"
        )


_CHANGE_COLUMNS: dict[str, Callable[[PolicyChangeRecord], str]] = {
    "number": lambda change: str(change.id),
    "status": lambda change: change.status,
    "weakens": lambda change: ", ".join(first_few(change.weakens)),
    "asked by": lambda change: change.requested.actor,
    "at": lambda change: change.requested.at.isoformat(timespec="seconds"),
    "why": lambda change: change.requested.reason or "-",
    "decided by": lambda change: change.decided.actor if change.decided else "-",
}


@commands.command("changes")
def list_changes(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="pending, approved or refused.")] = None,
    as_json: Json = False,
) -> None:
    """List edits that weaken protection: pending and decided ones."""
    with metadata_access.metadata_client(settings_of(context)) as client:
        print_listing(list(client.policy_changes(status)), as_json, _CHANGE_COLUMNS)


@commands.command("approve")
def approve_change(context: typer.Context, number: Number, reason: Why = "") -> None:
    """Approve an edit that weakens protection, as another person than the one who asked for it.

    New values are then stored readable. Sealed values stay sealed, and readable for authorised readers.
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
        done = client.decide_change(number, is_approved=True, reason=reason)
        print(f"change {done.id} is in force: {escape_control_chars(', '.join(first_few(done.weakens)))}")


@commands.command("redact")
def redact_path(context: typer.Context, path: str, reason: Why = "") -> None:
    """Ask to take a path made of somebody's value out of the catalogue and its history, with all below it.

    Another person approves it: idgraph attributes approve NUMBER
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
        number = client.request_redaction(path, reason)
        print(f"change {number} waits for a second person: idgraph attributes approve {number}")


@commands.command("caps")
def set_caps(
    context: typer.Context,
    per_source_and_day: Annotated[
        int | None, typer.Option(min=0, help="Most new attributes of one source and day.")
    ] = None,
    in_all: Annotated[
        int | None, typer.Option(min=0, help="Size of the catalogue at which nothing is discovered.")
    ] = None,
    reason: Why = "",
    as_json: Json = False,
) -> None:
    """Show what sources added to the catalogue, and what was over a cap; with an option, change the cap."""
    given = {"most_new_per_source_and_day": per_source_and_day, "most_attributes": in_all}
    caps = {name: value for name, value in given.items() if value is not None}
    with metadata_access.metadata_client(settings_of(context)) as client:
        if caps:
            client.put_defaults(client.get_defaults().model_copy(update=caps), reason)
        counts = client.discovery_counts()
        if not as_json:
            print(
                f"{counts.attributes:,} of {counts.most_attributes:,} attributes; "
                f"at most {counts.most_new_per_source_and_day:,} new ones of a source per day"
            )
        print_listing(counts.days, as_json, _COUNT_COLUMNS)


_COUNT_COLUMNS: dict[str, Callable[[DiscoveryCount], str]] = {
    "day": lambda each: each.day,
    "source": lambda each: each.source,
    "new": lambda each: f"{each.created:,}",
    "over the cap": lambda each: f"{each.waiting:,}",
}


@commands.command("purge")
def purge_undecided(
    context: typer.Context,
    source: Annotated[str | None, typer.Option(help="Only of this source.")] = None,
    prefix: Annotated[str, typer.Option(help="Beginning of the paths.")] = "",
    dry_run: DryRun = False,
    reason: Why = "",
) -> None:
    """Take attributes that nobody decided on out of the catalogue. Stored values stay.

    Attributes that have a description, or that more than a detector protects, stay too.
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
        done = client.purge(source, prefix, dry_run, reason)
        for path in done.paths:
            print(escape_control_chars(path))
        more = "; more match: purge again" if not done.is_all else ""
        verb = "would go" if dry_run else "purged"
        print(f"{counted(done.purged, 'attribute')} {verb}, {done.kept} kept{more}", file=sys.stderr)


@commands.command("refuse")
def refuse_change(context: typer.Context, number: Number, reason: Why = "") -> None:
    """Refuse an edit that weakens protection, or withdraw your own."""
    with metadata_access.metadata_client(settings_of(context)) as client:
        print(f"change {client.decide_change(number, is_approved=False, reason=reason).id} is refused")
