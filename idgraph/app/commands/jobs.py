"""`idgraph jobs`: list, show and cancel jobs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app import wiring
from idgraph.app.adapters.shared_state import job_log
from idgraph.app.commands.context import Json, note, stored
from idgraph.app.exits import Exit
from idgraph.app.terminal import print_json, print_table, report_cut
from idgraph.model.errors import NotFoundError
from idgraph.model.jobs import JobKind, moment_text
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.model.jobs import JobRecord

commands = typer.Typer(
    no_args_is_help=True,
    help=f"Jobs: {', '.join(JobKind)}. The command that started a job resumes it.",
)

JobId = Annotated[str, typer.Argument(help="Id of a job.")]


@commands.command("list")
def list_jobs(
    context: typer.Context,
    kind: Annotated[JobKind | None, typer.Option(help="Only jobs of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs to list.")] = 20,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first."""
    with job_log(stored(context)) as log:
        known = list(log.scan(kind))
        if as_json:
            for job in known[:limit]:
                print_json(described(job))
        else:
            titles = ("id", "kind", "state", "progress", "started", "by", "why")
            print_table(titles, map(_row, known[:limit]))
        report_cut(min(limit, len(known)), len(known))


@commands.command()
def show(context: typer.Context, job_id: JobId, as_json: Json = False) -> None:
    """Show one job: parameters, progress, examples of problems, error."""
    settings = stored(context)
    with job_log(settings) as log:
        job = log.get(job_id)
    if job is None:
        raise NotFoundError(f"no such job: {job_id}")
    description = described(job)
    with wiring.job_runner(settings) as runner:
        private = runner.private(job)
    description |= {"notes": private.get("notes", {}), "error": private.get("error", "")}
    if as_json:
        print_json(description)
    else:
        for key, value in description.items():
            print(escape_control_chars(f"{key}: {_text(value)}"))


@commands.command()
def cancel(context: typer.Context, job_id: JobId) -> None:
    """Ask a running job to end after its current page. Exit code 3: there is no such job; 1: it is not running."""
    settings = stored(context)
    with job_log(settings) as log:
        job = log.get(job_id)
        if job is not None:
            note(settings, f"cancel {job.kind}", subject=job_id)
        if log.cancel(job_id):
            print(f"job {job_id} ends after its current page")
            return
        if job is None:
            raise NotFoundError(f"no such job: {job_id}")
        print(f"job {job_id} is not running: {job.state}", file=sys.stderr)
        raise typer.Exit(Exit.FAILED)


def described(job: JobRecord) -> dict[str, Any]:
    """The JSON object of a job, without fields that can name persons."""
    return job.document("seconds") | {"cancel_requested": job.is_cancel_requested}


def _row(job: JobRecord) -> list[str]:
    done = f"{job.progress.done:,} of {job.progress.total:,} {job.progress.unit}s"
    state = "ending" if job.is_cancel_requested and job.state == "running" else str(job.state)
    return [job.id, str(job.kind), state, done, moment_text(job.started), job.origin.who, job.origin.why]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(each)}" for key, each in value.items()) or "-"
    return ", ".join(value) if isinstance(value, list) else str(value)
