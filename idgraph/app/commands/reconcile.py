"""`idgraph reconcile`: compare the index with the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.commands.context import Json, settings_of
from idgraph.app.exits import Exit, error_handler
from idgraph.app.jobs import progress as progress_view
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal.output import counted, escape_control_chars, print_json, print_table

if TYPE_CHECKING:
    from idgraph.jobs.reconcile import ReconcileProgress


def reconcile(
    context: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Repair differences from the store.")] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            "--rate",
            min=1,
            help="Most profiles and documents per second. Default: no limit.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Start from the beginning instead of resuming.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the search index with the store: missing, stale, different or orphaned documents.

    It runs beside a flow; profiles on their way into the index are no drift. Exit code 6: they differ, or with
    --repair something could not be repaired; 0: no drift.
    """
    from idgraph.app.jobs.index_upkeep import reconciling
    from idgraph.jobs.reconcile import PAGE

    with error_handler(), reconciling(settings_of(context), repair) as work:
        job = progress_view.paced(
            work.run(min(PAGE, rate or PAGE), again), rate, lambda progress: progress.looked_at
        )
        done = next(job)
        begun = f"goes on after {done.looked_at:,}" if done.resumed else "begins"
        say(f"comparing {begun}: {done.total:,} profiles and documents")
        progress_view.show(job, done.total, "compared")
        if as_json:
            print_json(_described(done))
        else:
            _show_report(done, repair)
        if done.left:
            raise typer.Exit(Exit.DRIFT)


def _described(done: ReconcileProgress) -> dict[str, Any]:
    from idgraph.jobs.reconcile import Drift

    return {
        "profiles": done.stored,
        "documents": done.indexed,
        "drift": {str(kind): done.drift[str(kind)] for kind in Drift},
        "waiting": done.waiting,
        "unreadable": done.unreadable,
        "repaired": done.repaired,
        "left": done.left,
        "fragments": done.named,
    }


def _show_report(done: ReconcileProgress, repair: bool) -> None:
    from idgraph.jobs.reconcile import Drift

    if done.drift.total():
        print_table(
            ("drift", "number", "such as"),
            [
                (kind, f"{number:,}", escape_control_chars(", ".join(done.named.get(kind, ()))))
                for kind, number in sorted(done.drift.items())
            ],
        )
    waiting = f", {done.waiting:,} on their way" * bool(done.waiting)
    reported = (
        f"{counted(done.stored, 'profile')} and {counted(done.indexed, 'document')} compared{waiting}: "
    )
    if not done.drift.total():
        print(f"{reported}no drift")
        return
    print(
        f"{reported}{done.repaired:,} of {done.drift.total():,} repaired"
        if repair
        else f"{reported}{done.drift.total():,} differ"
    )
    if done.drift[str(Drift.AHEAD)] or (repair and done.left):
        say(
            "the index has later versions than the store, as after a restored backup: `idgraph reindex` repairs it"
        )
    elif done.left:
        say("`idgraph reconcile --repair` repairs it")
    if done.unreadable:
        say(f"{counted(done.unreadable, 'profile')} cannot be read: their state is damaged")
