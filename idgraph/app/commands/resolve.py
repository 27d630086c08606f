"""`idgraph resolve`: all persons again, compared with what the projection recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import JobWho, JobWhy, Json, keyed, origin_of
from idgraph.app.exits import Exit
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted, print_json
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.model.jobs import Progress
    from idgraph.projection.parts import Tasks


def resolve(
    context: typer.Context,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Resolve from scratch in Spark, by other code than readers and the projection."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if anything differs.")
    ] = False,
    rules_restored: Annotated[
        bool,
        typer.Option(
            "--rules-restored",
            help="Use today's rules although newer ones were in force: these were lost with a metadata database.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for one JSON line per profile: id, fragments and identifiers."
        ),
    ] = None,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Resolve all profiles again, and correct what the projection recorded otherwise.

    After new identity rules it brings search up to date, and touches only the profiles that change. With --rebuild, Spark
    joins all fragments from scratch. Profiles on their way into the index are no difference. Exit code 1: with --check
    something differs, or the index has not taken it.
    """
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.app.jobs.view import run_shown
    from idgraph.jobs.export_file import require_export
    from idgraph.jobs.resolve import ResolveAll, ResolveParameters
    from ingestion.stages.resolve import BEGINNING

    settings = keyed(context)
    if output is not None:
        require_export(output, BEGINNING)
    wiring.prepare_directory(settings)
    origin = origin_of(who, why)
    with LocalJobContext(settings, origin) as here:
        job = ResolveAll(ResolveParameters(check=check, rebuild=rebuild, output=output), here)
        done = run_shown(here.runner, job, origin)
        _show_report(done, check, as_json)
        differs = bool(done.counts["misplaced"] or done.counts["documents"])
        if not check and (differs or rules_restored):
            say("the projection corrects them")
            rules = wiring.index_rules(settings, here.pinned)
            with _tasks(here, rebuild) as tasks:
                projection = here.resources().projection(lambda: rules, tasks)
                if rules_restored:
                    projection.count_as_newest()
                left = projection.sweep().left()
            differs = left > 0
            if left:
                say(f"the index has not taken {counted(left, 'fragment')}: the outbox keeps them")
    if differs:
        raise typer.Exit(Exit.FAILED)


@contextmanager
def _tasks(here: LocalJobContext, rebuild: bool) -> Iterator[Tasks | None]:
    """Tasks of Spark, where Spark is wanted and its executors reach the index."""
    if not rebuild or here.settings.index.kind == "sqlite":
        yield None
        return
    from ingestion.spark.projection_tasks import ProjectionTasks

    tasks = ProjectionTasks(here.plan, lambda: here.pinned, lambda: False)
    with here.spark("resolve") as session, tasks.on(session):
        yield tasks


def _show_report(done: Progress, check: bool, as_json: bool) -> None:
    names = ("profiles", "misplaced", "documents", "waiting", "unreadable")
    counts = {name: done.counts[name] for name in names}
    if as_json:
        print_json({"fragments": done.done, **counts, "examples": done.notes})
        return
    print(f"{counted(done.done, 'fragment')}, {counted(counts['profiles'], 'profile')}")
    print(
        f"{counted(counts['misplaced'], 'fragment')} recorded for another profile{_such_as(done, 'misplaced')}"
    )
    if check:
        missing = counted(counts["documents"], "profile")
        print(f"{missing} without a document of its version{_such_as(done, 'documents')}")
        if counts["documents"]:
            say("`idgraph reconcile --repair` repairs documents")
    if counts["waiting"]:
        print(f"{counted(counts['waiting'], 'profile')} on the way into the index")
    if counts["unreadable"]:
        print(f"{counted(counts['unreadable'], 'fragment')} left out, whose stored state is damaged")


def _such_as(done: Progress, name: str) -> str:
    examples = done.notes.get(name, [])
    return f", such as {escape_control_chars(', '.join(examples))}" if examples else ""
