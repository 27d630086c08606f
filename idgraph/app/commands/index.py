"""`idgraph index`: the search index, and its versions."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app.commands.context import Again, JobWho, JobWhy, Json, Rate, origin_of, settings_of, stored
from idgraph.app.exits import Exit
from idgraph.app.jobs.view import LINE_SECONDS
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted, print_json, print_table
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.projection.stream_following import FollowProgress


def reindex(
    context: typer.Context,
    rate: Rate = None,
    again: Again = False,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Build a new search index from the store, beside the running flow, then switch to it.

    Searches use the old one until then. The same command resumes an interrupted run. Exit code 1: some profiles
    could not be indexed, as the message says.
    """
    from idgraph.app.jobs.context import run_job
    from idgraph.jobs.reindex import REINDEX, ReindexParameters

    job, done = run_job(stored(context), REINDEX, ReindexParameters(rate=rate), origin_of(who, why), again)
    refused, named = done.counts["refused"], done.notes.get("refused", [])
    if as_json:
        print_json(
            {
                "version": job.version,
                "replaced": job.replaced,
                "profiles": done.counts["indexed"] + refused,
                "resumed": done.resumed,
                "refused": refused,
                "fragments": named,
            }
        )
    else:
        print(f"{counted(done.counts['indexed'], 'profile')} indexed; {job.version} is in use")
        print(f"{job.replaced} is deleted")
    if refused:
        say(
            f"{counted(refused, 'profile')} could not be indexed: {escape_control_chars(', '.join(named))}"
            f"{', …' * (refused > len(named))}; repair the cause in the log, then `idgraph reconcile --repair`"
        )
        raise typer.Exit(Exit.FAILED)


commands = typer.Typer(no_args_is_help=True, help="The search index.")


@commands.callback()
def root() -> None:
    """The search index."""


@commands.command("create")
def create(context: typer.Context) -> None:
    """Create the first index version in Elasticsearch, and its alias. Repeating it is no error."""
    from idgraph.app.adapters import indexes

    made = indexes.create(settings_of(context))
    print(f"created {made}" if made else "the index exists")


@commands.command("versions")
def versions(context: typer.Context, as_json: Json = False) -> None:
    """List the versions of the index: in use, being made, replaced."""
    from idgraph.app.jobs.index_upkeep import opened_versions

    with opened_versions(stored(context)) as opened:
        known = opened.known()
        if as_json:
            for each in known:
                print_json({"name": each.name, "state": str(each.state), "documents": each.documents})
        else:
            rows = [(each.name, str(each.state), f"{each.documents:,}") for each in known]
            print_table(("version", "state", "documents"), rows)


@commands.command("follow")
def follow(
    context: typer.Context,
    until_done: Annotated[
        bool,
        typer.Option("--until-done", help="Stop when the stream and the outbox are empty."),
    ] = False,
    as_json: Json = False,
) -> None:
    r"""Index from the stream of the DynamoDB table, instead of the flows (`\[index] fed_by = "streams"`).

    It runs until Ctrl-C, and the next run continues.
    """
    from idgraph.app.commands.flow import stopping_on_signals
    from idgraph.app.jobs.index_upkeep import following

    with stopping_on_signals("page") as stop:
        settings = settings_of(context)
        with following(settings) as work:
            if settings.index.fed_by == "flow":
                say('the flows write to the index as well; see `[index] fed_by = "streams"`')
            say(f"following {work.stream.name}")
            done: FollowProgress | None = None
            reported, due = -1, 0.0
            for done in work.run(stop):
                if done.reported != reported and time.monotonic() >= due:
                    reported, due = done.reported, time.monotonic() + LINE_SECONDS
                    _show_progress(done, as_json)
                if until_done and done.is_idle and work.is_drained(done):
                    break
            if done is not None and done.reported != reported:
                _show_progress(done, as_json)


def _show_progress(done: FollowProgress, as_json: bool) -> None:
    if as_json:
        fields = ("reported", "indexed", "refused", "trimmed", "shards")
        print_json({name: getattr(done, name) for name in fields})
    else:
        refused = f", {done.refused:,} refused" * bool(done.refused)
        print(f"{counted(done.reported, 'change')}, {counted(done.indexed, 'profile')} indexed{refused}")
    sys.stdout.flush()
