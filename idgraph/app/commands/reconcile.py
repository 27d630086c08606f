"""`idgraph reconcile`: compare the index with the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.commands.context import Again, JobWho, JobWhy, Json, Rate, origin_of, stored
from idgraph.app.exits import Exit
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted, print_json, print_table
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.model.jobs import Progress


def reconcile(
    context: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Repair differences from the store.")] = False,
    rate: Rate = None,
    again: Again = False,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Compare the search index with the store: missing, stale, different or orphaned documents.

    It runs beside a flow; profiles on their way into the index are no drift. Exit code 6: they differ, or with
    --repair something could not be repaired; 0: no drift.
    """
    from idgraph.app.jobs.context import run_job
    from idgraph.jobs.reconcile import RECONCILE, ReconcileParameters

    parameters = ReconcileParameters(repair=repair, rate=rate)
    _, done = run_job(stored(context), RECONCILE, parameters, origin_of(who, why), again)
    if as_json:
        print_json(_described(done))
    else:
        _show_report(done, repair)
    if done.counts["left"]:
        raise typer.Exit(Exit.DRIFT)


def _described(done: Progress) -> dict[str, Any]:
    from idgraph.jobs.reconcile import Drift

    drift = done.parts("drift")
    return {
        "profiles": done.counts["stored"],
        "documents": done.counts["indexed"],
        "drift": {str(kind): drift[str(kind)] for kind in Drift},
        "waiting": done.counts["waiting"],
        "unreadable": done.counts["unreadable"],
        "repaired": done.counts["repaired"],
        "left": done.counts["left"],
        "fragments": done.notes,
    }


def _show_report(done: Progress, repair: bool) -> None:
    from idgraph.jobs.reconcile import Drift

    drift = done.parts("drift")
    if drift.total():
        print_table(
            ("drift", "number", "such as"),
            [
                (kind, f"{number:,}", escape_control_chars(", ".join(done.notes.get(kind, ()))))
                for kind, number in sorted(drift.items())
            ],
        )
    waiting = f", {done.counts['waiting']:,} on their way" * bool(done.counts["waiting"])
    profiles, documents = done.counts["stored"], done.counts["indexed"]
    summary = f"{counted(profiles, 'profile')} and {counted(documents, 'document')} compared{waiting}: "
    if not drift.total():
        print(f"{summary}no drift")
        return
    print(
        f"{summary}{done.counts['repaired']:,} of {drift.total():,} repaired"
        if repair
        else f"{summary}{drift.total():,} differ"
    )
    if drift[str(Drift.AHEAD)] or (repair and done.counts["left"]):
        say(
            "the index has later versions than the store, as after a restored backup: `idgraph reindex` repairs it"
        )
    elif done.counts["left"]:
        say("`idgraph reconcile --repair` repairs it")
    if done.counts["unreadable"]:
        say(f"{counted(done.counts['unreadable'], 'profile')} cannot be read: their state is damaged")
