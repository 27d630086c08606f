"""`idgraph dead-letters`: list, show, replay and drop dead letters."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import JobWho, Purpose, keyed, note, origin_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import counted, print_json, print_table, report_cut
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import NotFoundError, SealError
from idgraph.model.text import escape_control_chars, visible_lines

if TYPE_CHECKING:
    from idgraph.model.dead_letters import DeadLetter, DeadLetters
    from ingestion.spark.workers import WorkerResources
    from profile_service.api.dead_letters import DeadLetterFilter

commands = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, replay, drop.")


def _named(name: str | None) -> str | None:
    """Refuse an empty name, a script's unset variable: it must mean neither all sources or files nor none."""
    if name == "":
        raise typer.BadParameter("it is empty; name a source or a file")
    return name


Ids = Annotated[
    list[str] | None,
    typer.Argument(
        help="Ids of dead letters; --reason, --source and --file narrow them.", show_default=False
    ),
]
Reason = Annotated[DeadLetterReason | None, typer.Option(help="Only dead letters with this reason.")]
Source = Annotated[str | None, typer.Option(help="Only dead letters of this source.", callback=_named)]
File = Annotated[
    str | None,
    typer.Option(
        "--file", help="Only dead letters of this file: its name, or the end of its path.", callback=_named
    ),
]
All = Annotated[bool, typer.Option("--all", help="All dead letters.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per dead letter, for scripts.")]


@commands.command("list")
def list_dead_letters(
    context: typer.Context,
    reason: Reason = None,
    source: Source = None,
    file: File = None,
    limit: Annotated[int, typer.Option(min=1, help="Most dead letters to list.")] = 20,
    as_json: Json = False,
) -> None:
    """List dead letters, the newest first, and their number by reason."""
    wanted = _filter(reason, source, file)
    with wiring.opened(keyed(context)) as resources:
        shown: list[DeadLetter] = []
        matching: Counter[str] = Counter()
        for dead_letter in wanted.all_of(resources.dead_letters):
            matching[dead_letter.reason] += 1
            if len(shown) < limit:
                shown.append(dead_letter)
        if as_json:
            for dead_letter in shown:
                print_json(_described(dead_letter))
        else:
            _print_dead_letters(shown, matching, is_chosen=wanted != _filter())
        report_cut(len(shown), matching.total())


@commands.command()
def show(
    context: typer.Context,
    dead_letter_id: Annotated[str, typer.Argument(help="Id of a dead letter.")],
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show the record itself; needs the keyring.")
    ] = False,
    purpose: Purpose = "on the command line",
    as_json: Json = False,
) -> None:
    """Show one dead letter. The record is sealed; --reveal shows it."""
    settings = keyed(context)
    with wiring.opened(settings) as resources:
        dead_letter = resources.dead_letters.get(dead_letter_id)
        if dead_letter is None:
            raise NotFoundError(f"no such dead letter: {dead_letter_id}")
        described = _described(dead_letter)
        if reveal:
            note(settings, "reveal dead letter", subject=dead_letter_id, purpose=purpose)
            described["record"] = _record(dead_letter, resources)
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
    file: File = None,
    everything: All = False,
    who: JobWho = "",
    why: Annotated[str, typer.Option("--why", help="Reason; kept with the job.")] = "",
) -> None:
    """Replay dead letters through the stages with the current specs.

    Those that pass leave the list; the others stay with their new reason. Exit code 1: some stay; 3: a named one
    does not exist.
    """
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.app.jobs.view import run_shown
    from idgraph.jobs.replay import ReplayParameters, prepare

    origin = origin_of(who, why)
    with LocalJobContext(keyed(context), origin, report=_report) as here:
        here.snapshot_for("a replay")
        letters = here.resources().dead_letters
        chosen, missing = _chosen(letters, ids, _filter(reason, source, file), everything)
        job = prepare(ReplayParameters(dead_letters=chosen), here)
        counts = run_shown(here.runner, job, origin).counts
    print(
        f"replayed {counts['replayed']}, still dead {counts['still_dead']}, to publish again "
        f"{counts['partial']}, unreadable {counts['unreadable']}"
    )
    if counts["still_dead"] or counts["partial"] or counts["unreadable"]:
        raise typer.Exit(Exit.FAILED)
    if missing:
        raise typer.Exit(Exit.NOT_FOUND)


@commands.command()
def drop(
    context: typer.Context,
    ids: Ids = None,
    reason: Reason = None,
    source: Source = None,
    file: File = None,
    everything: All = False,
    why: Annotated[str, typer.Option("--why", help="Reason; kept in the audit log.")] = "",
) -> None:
    """Remove dead letters for good. Exit code 3: a named one does not exist."""
    settings = keyed(context)
    with wiring.opened(settings) as resources:
        chosen, missing = _chosen(resources.dead_letters, ids, _filter(reason, source, file), everything)
        if chosen:
            note(settings, "drop dead letters", subject=counted(len(chosen), "dead letter"), purpose=why)
        print(f"dropped {resources.orphaned_keys().drop_dead_letters(chosen)}")
        if missing:
            raise typer.Exit(Exit.NOT_FOUND)


def _print_dead_letters(shown: list[DeadLetter], counts: Counter[str], is_chosen: bool) -> None:
    if not counts:
        print("no such dead letters" if is_chosen else "no dead letters")
        return
    print_table(
        ("id", "set aside", "reason", "stage", "position", "spec", "detail"),
        [
            (
                dead_letter.id,
                _moment(dead_letter, "seconds"),
                dead_letter.reason,
                dead_letter.stage,
                dead_letter.position,
                dead_letter.spec or "-",
                dead_letter.detail,
            )
            for dead_letter in shown
        ],
    )
    print("; ".join(f"{name}: {count}" for name, count in sorted(counts.items())), file=sys.stderr)


def _filter(
    reason: DeadLetterReason | None = None, source: str | None = None, file: str | None = None
) -> DeadLetterFilter:
    from profile_service.api.dead_letters import DeadLetterFilter

    # Not validated: of a request's limits a command knows nothing.
    return DeadLetterFilter.model_construct(reason=reason, source=source, file=file)


def _chosen(
    dead_letters: DeadLetters, ids: list[str] | None, wanted: DeadLetterFilter, everything: bool
) -> tuple[list[str], list[str]]:
    """Ids of the chosen dead letters, and of named ones that do not exist. The latter are only reported: a replay can have
    removed them meanwhile."""
    is_narrowed = wanted != _filter()
    if not (ids or is_narrowed or everything):
        raise typer.BadParameter("name dead letters, or use --reason, --source, --file or --all")
    if everything and (ids or is_narrowed):
        raise typer.BadParameter("--all cannot be combined with ids, --reason, --source or --file")
    if not ids:
        return [dead_letter.id for dead_letter in wanted.all_of(dead_letters)], []
    named = {dead_letter_id: dead_letters.get(dead_letter_id) for dead_letter_id in ids}
    missing = [dead_letter_id for dead_letter_id, dead_letter in named.items() if dead_letter is None]
    if missing:
        print(f"error: no such dead letter: {escape_control_chars(', '.join(missing))}", file=sys.stderr)
    chosen = [dead_letter.id for dead_letter in named.values() if dead_letter and wanted.takes(dead_letter)]
    return chosen, missing


def _report(text: str) -> None:
    print(escape_control_chars(text), file=sys.stderr)


def _described(dead_letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": dead_letter.id,
        "reason": str(dead_letter.reason),
        "stage": dead_letter.stage,
        "detail": dead_letter.detail,
        "source": dead_letter.source,
        "position": dead_letter.position,
        "spec": dead_letter.spec,
        "snapshot": dead_letter.snapshot_version,
        "set_aside": _moment(dead_letter, "milliseconds"),
    }


def _moment(dead_letter: DeadLetter, precision: str) -> str:
    return datetime.fromtimestamp(dead_letter.set_aside_at / 1000, UTC).isoformat(timespec=precision)


def _record(dead_letter: DeadLetter, resources: WorkerResources) -> str:
    try:
        payload = resources.sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position)
    except SealError as error:
        return f"({error})"
    return payload.decode(errors="backslashreplace")
