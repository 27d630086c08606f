"""`idgraph backfill`: an archive through the stages, beside the running flow."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.commands.context import JobWho, JobWhy, Json, origin_of, settings_of
from idgraph.app.commands.flow import Reporter, described, stopping_on_signals
from idgraph.app.observation.json_logs import log_batch, say
from idgraph.app.terminal import print_json
from idgraph.model.errors import JobStoppedError, NotFoundError

if TYPE_CHECKING:
    from idgraph.jobs.job import Run
    from idgraph.model.jobs import Progress
    from ingestion.stages.outcomes import BatchReport


def backfill(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="The configured source of the archive's events.")],
    archive: Annotated[
        str | None, typer.Argument(help="A directory of files, a file, or a quoted glob of files.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="The first message of topics in Pulsar: earliest, a time, or a position."),
    ] = None,
    until: Annotated[str, typer.Option(help="The last one: latest, a time, or a position.")] = "latest",
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=1, help="Most events per second. Default: no limit."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also take files that were done before.")] = False,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Take an archive of a source's files, or older messages of its topics, beside the running flow, with the same profiles as
    if it had come in time.

    The same command resumes it. Exit code 0: all is done; 3: there is no file or message; 4: too many events became
    dead letters, or `flow.on_failure` stopped it; 130: stopped or cancelled.
    """
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.app.jobs.view import Estimate, line, showing
    from idgraph.jobs.backfill import BackfillParameters, prepare

    if archive == "":
        raise typer.BadParameter("the archive's path is empty")
    origin, estimate = origin_of(who, why), Estimate()
    runs: list[Run] = []
    with (
        stopping_on_signals() as stop,
        LocalJobContext(settings_of(context), origin, again=again, stop=stop) as here,
        ExitStack() as shown,
    ):

        def begin(run: Run) -> None:
            runs.append(run)
            show(run)

        def show_report(report: BatchReport) -> None:
            progress = runs[0].progress
            log_batch(report)
            if as_json:
                _print_batch(report, progress, estimate.seconds_left(progress))
            else:
                show(runs[0])

        reporter = Reporter(show_report, stop)
        stated = BackfillParameters(
            source=source, archive=Path(archive) if archive else None, since=since, until=until, rate=rate
        )
        job = prepare(stated, here, begin, reporter)
        if job is None:
            if archive:
                raise NotFoundError(f"no file in {archive}, or only empty ones")
            raise NotFoundError(f"no message of {source} from {since} to {until}")
        ensure_keyring(here.settings)
        show = shown.enter_context(showing())
        try:
            here.runner.run(job, origin, again)
        except JobStoppedError:
            reporter.check()
            say(line(runs[0].progress))
            raise
        shown.close()
        say(line(runs[0].progress))
        if job.is_unsealed(runs[0].point):
            say("protection changed meanwhile: run `idgraph seal`")


def _print_batch(report: BatchReport, progress: Progress, seconds_left: float | None) -> None:
    print_json(
        {
            **described(report),
            f"{progress.unit}s_done": progress.done,
            f"{progress.unit}s_total": progress.total,
            "events_done": progress.counts["events"],
            "seconds_left": None if seconds_left is None else round(seconds_left, 1),
        }
    )
    sys.stdout.flush()
