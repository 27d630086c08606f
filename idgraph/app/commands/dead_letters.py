"""`idgraph dead-letters`: what was set aside, why, and how to get it back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.commands.context import settings_of
from idgraph.app.exits import Exit, told
from idgraph.app.terminal.escapes import visible, visible_lines
from idgraph.app.terminal.output import print_json, print_table, tell_cut
from idgraph.model.dead_letters import COMMIT_REASONS, DeadLetterReason
from idgraph.model.errors import MetadataError, SealError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.dead_letters import DeadLetter, DeadLetters
    from idgraph.model.schema_changes import SchemaChange
    from ingestion.spark.workers import WorkerResources

commands = typer.Typer(no_args_is_help=True, help="What was set aside, why, and how to get it back.")


def _named(source: str | None) -> str | None:
    """An empty name is a script's variable that is not set: it must not mean all sources, and not none."""
    if source == "":
        raise typer.BadParameter("it is empty; name a source")
    return source


Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of dead letters; with --reason or --source those of them.", show_default=False),
]
Reason = Annotated[DeadLetterReason | None, typer.Option(help="Only letters with this reason.")]
Source = Annotated[str | None, typer.Option(help="Only letters of this source.", callback=_named)]
All = Annotated[bool, typer.Option("--all", help="All letters.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a letter, for scripts.")]


@commands.command("list")
def list_letters(
    context: typer.Context,
    reason: Reason = None,
    source: Source = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """List dead letters, and how many there are by reason."""
    with told(), wiring.opened(_ready(context)) as resources:
        letters = resources.dead_letters
        shown = [letter for _, letter in zip(range(limit), letters.scan(reason, source), strict=False)]
        matching = {kind: count for kind, count in letters.counts(source).items() if reason in (None, kind)}
        if as_json:
            for letter in shown:
                print_json(_described(letter))
        else:
            _print_letters(shown, matching, is_chosen=bool(reason or source))
        tell_cut(len(shown), sum(matching.values()))


@commands.command()
def show(
    context: typer.Context,
    letter_id: Annotated[str, typer.Argument(help="Id of a dead letter.")],
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show the record itself; needs the keyring.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show one dead letter. The record is sealed; --reveal shows it."""
    with told(), wiring.opened(_ready(context)) as resources:
        letter = resources.dead_letters.get(letter_id)
        if letter is None:
            print(f"no such dead letter: {visible(letter_id)}", file=sys.stderr)
            raise typer.Exit(Exit.NOT_FOUND)
        described = _described(letter)
        if reveal:
            described["record"] = _record(letter, resources)
        if as_json:
            print_json(described)
        else:
            for key, value in described.items():
                print(visible_lines(f"{key}: {'-' if value is None else value}"))


@commands.command()
def replay(
    context: typer.Context,
    ids: Ids = None,
    reason: Reason = None,
    source: Source = None,
    everything: All = False,
) -> None:
    """Give letters through the pipeline again, under the specs of now.

    Those that pass leave the list; the others stay with their new reason. Exit code 1 if some stay, else 3 if one
    that was named is not there.
    """
    from idgraph.jobs.replay import replay as replay_letters

    with told():
        settings = _ready(context)
        pinned = wiring.newest_snapshot(settings)
        if pinned is None:
            raise MetadataError("there is no metadata to replay under: start the metadata service")
        with wiring.opened(settings) as resources:
            wiring.require_own_keyring(settings, resources)
            letters = resources.dead_letters
            chosen, missing = _chosen(letters, ids, reason, source, everything)
            report = replay_letters(
                _one_by_one(letters, chosen),
                wiring.worker_plan(settings),
                resources,
                pinned.snapshot,
                resources.sealer.open,
                functools.partial(_send, settings),
            )
        print(
            f"replayed {report.replayed}, still dead {report.still_dead}, to be given again as files "
            f"{report.partial}, unreadable {report.unreadable}"
        )
        if report.still_dead or report.partial or report.unreadable:
            raise typer.Exit(Exit.FAILED)
        if missing:
            raise typer.Exit(Exit.NOT_FOUND)


@commands.command()
def drop(
    context: typer.Context,
    ids: Ids = None,
    reason: Reason = None,
    source: Source = None,
    everything: All = False,
) -> None:
    """Remove letters for good. Exit code 3 if one that was named is not there."""
    with told(), wiring.opened(_ready(context)) as resources:
        letters = resources.dead_letters
        chosen, missing = _chosen(letters, ids, reason, source, everything)
        wanted, counts = set(chosen), letters.counts()
        changes = (each for kind in COMMIT_REASONS if counts.get(kind) for each in letters.scan(reason=kind))
        positions = {each.id: each.position for each in changes if each.id in wanted}
        dropped = letters.drop(chosen)
        leftover_keys = resources.leftover_keys()
        if leftover_keys.erase_of_letters(positions):
            leftover_keys.compact()
        print(f"dropped {dropped}")
        if missing:
            raise typer.Exit(Exit.NOT_FOUND)


def _print_letters(shown: list[DeadLetter], counts: dict[str, int], is_chosen: bool) -> None:
    if not counts:
        print("no such dead letters" if is_chosen else "no dead letters")
        return
    print_table(
        ("id", "reason", "stage", "position", "spec", "detail"),
        [
            (letter.id, letter.reason, letter.stage, letter.position, letter.spec or "-", letter.detail)
            for letter in shown
        ],
    )
    print("; ".join(f"{name}: {count}" for name, count in sorted(counts.items())), file=sys.stderr)


def _ready(context: typer.Context) -> Settings:
    settings = settings_of(context)
    ensure_keyring(settings)
    return settings


def _chosen(
    letters: DeadLetters, ids: list[str] | None, reason: str | None, source: str | None, everything: bool
) -> tuple[list[str], list[str]]:
    """Ids of the letters that are meant, and of those that were named and are not there, which is told: they may have
    been replayed meanwhile, which is no reason to leave the others."""
    if not (ids or reason or source or everything):
        raise typer.BadParameter("name letters, or give --reason, --source or --all")
    if everything and (ids or reason or source):
        raise typer.BadParameter("--all is all of them: give it alone")
    if not ids:
        return [letter.id for letter in letters.scan(reason, source)], []
    named = {letter_id: letters.get(letter_id) for letter_id in ids}
    missing = [letter_id for letter_id, letter in named.items() if letter is None]
    if missing:
        print(f"no such dead letter: {visible(', '.join(missing))}", file=sys.stderr)
    chosen = [
        letter.id
        for letter in named.values()
        if letter and reason in (None, letter.reason) and source in (None, letter.source)
    ]
    return chosen, missing


def _one_by_one(letters: DeadLetters, ids: Iterable[str]) -> Iterator[DeadLetter]:
    """The letters of a bad day do not fit in memory. One that went since it was chosen is told."""
    for each in ids:
        if (letter := letters.get(each)) is not None:
            yield letter
        else:
            print(f"gone meanwhile: {visible(each)}", file=sys.stderr)


def _described(letter: DeadLetter) -> dict[str, Any]:
    moment = datetime.fromtimestamp(letter.set_aside_at / 1000, UTC)
    return {
        "id": letter.id,
        "reason": str(letter.reason),
        "stage": letter.stage,
        "detail": letter.detail,
        "source": letter.source,
        "position": letter.position,
        "spec": letter.spec,
        "snapshot": letter.snapshot_version,
        "set_aside": moment.isoformat(timespec="milliseconds"),
    }


def _record(letter: DeadLetter, resources: WorkerResources) -> str:
    try:
        payload = resources.sealer.open(letter.payload, letter.id, letter.position)
    except SealError as error:
        return f"({error})"
    return payload.decode(errors="backslashreplace")


def _send(settings: Settings, changes: list[SchemaChange]) -> None:
    from ingestion.metadata.schema_sender import SchemaSender

    try:
        with wiring.metadata_client(settings) as client:
            SchemaSender(client, wiring.refused_changes_file(settings)).send(changes)
    except MetadataError as error:
        raise type(error)(
            f"{error}; letters that bring new attributes stay until the service knows these: replay again then"
        ) from None
