"""`idgraph reindex`: the index again from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.commands.context import Json, settings_of
from idgraph.app.exits import Exit, error_handler
from idgraph.app.jobs import progress as progress_view
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal.escapes import escape_control_chars
from idgraph.app.terminal.output import counted, print_json

if TYPE_CHECKING:
    from idgraph.jobs.reindex import ReindexProgress

Rate = Annotated[
    int | None,
    typer.Option("--rate", min=1, help="At most so many profiles a second. Default: as fast as it goes."),
]


def reindex(
    context: typer.Context,
    rate: Rate = None,
    again: Annotated[
        bool, typer.Option("--again", help="Begin again, rather than where an earlier run was interrupted.")
    ] = False,
    delete_old: Annotated[
        bool, typer.Option("--delete-old", help="Delete the versions that were replaced, for good.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the search index again from the store, beside the running flow, and put it in the place of the present one.

    Searches see the present one until then. However it ends, the same command goes on where it stopped. Exit code 1
    if some profiles could not be indexed, which is then reported.
    """
    from idgraph.app.jobs.index_upkeep import opened_versions, reindexing
    from idgraph.jobs.reindex import PAGE
    from idgraph.model.index_versions import VersionState

    with error_handler():
        settings = settings_of(context)
        with reindexing(settings) as work:
            job = progress_view.paced(
                work.run(min(PAGE, rate or PAGE), again), rate, lambda progress: progress.indexed
            )
            done = next(job)
            begun = f"goes on after {done.looked_at:,}" if done.resumed else "begins"
            say(f"making {done.version} {begun}: {counted(done.total, 'profile')}")
            progress_view.show(job, done.total, "profiles")
        deleted: list[str] = []
        if delete_old:
            with opened_versions(settings) as versions:
                for each in versions.known():
                    if each.state is VersionState.REPLACED:
                        versions.delete(each.name)
                        deleted.append(each.name)
        if as_json:
            print_json(_described(done, deleted))
        else:
            _show_report(done, deleted)
        if done.refused:
            say(
                f"{counted(len(done.refused), 'profile')} could not be indexed: {escape_control_chars(', '.join(done.named))}"
                f"{', …' * (len(done.refused) > len(done.named))}; repair what the log says, then "
                "`idgraph reconcile --repair`"
            )
            raise typer.Exit(Exit.FAILED)


def _described(done: ReindexProgress, deleted: list[str]) -> dict[str, Any]:
    return {
        "version": done.version,
        "replaced": done.replaced,
        "deleted": deleted,
        "profiles": done.looked_at,
        "followed": done.followed,
        "resumed": done.resumed,
        "refused": len(done.refused),
        "fragments": done.named,
    }


def _show_report(done: ReindexProgress, deleted: list[str]) -> None:
    followed = f", {counted(done.followed, 'profile')} followed that others wrote meanwhile" * bool(
        done.followed
    )
    print(f"{counted(done.looked_at, 'profile')} indexed{followed}; {done.version} is in use")
    if done.replaced not in deleted:
        say(f"{done.replaced} is there still: `idgraph index delete {done.replaced}` removes it")
    for name in deleted:
        print(f"{name} is deleted")
