"""`idgraph backfill`: an archive through the stages, beside the running flow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app.commands.context import Json, settings_of
from idgraph.app.commands.flow import Reporter, described, stopping_on_signals
from idgraph.app.exits import Exit, error_handler
from idgraph.app.observation.json_logs import log_batch, say
from idgraph.app.terminal.output import counted, print_json
from idgraph.model.errors import AlreadyRunningError, ConfigError

if TYPE_CHECKING:
    from threading import Event

    from idgraph.app.jobs.backfill import Archive, BackfillStep
    from idgraph.jobs.backfill.archive import Tally


def backfill(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="The configured source whose events the archive holds.")],
    archive: Annotated[str, typer.Argument(help="A directory of files, a file, or a quoted glob of files.")],
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=1, help="At most so many events a second. Default: as fast as it goes."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Take files that were done before, too.")] = False,
    as_json: Json = False,
) -> None:
    """Take an archive of a source's files beside the running flow: profiles come out as if it had come in time.

    However it ends, the same command goes on where it stopped. Exit code 0 when all files are done, 3 when
    there is none, 4 when too many events became dead letters or `flow.on_failure` says to stop, 130 when it was
    stopped before its end.
    """
    from idgraph.app.jobs.backfill import find_archive, is_unsealed

    if not archive:
        raise typer.BadParameter("the archive's path is empty")
    with error_handler(), stopping_on_signals() as stop:
        found = find_archive(settings_of(context), source, Path(archive))
        if not found.files:
            say(f"no file in {archive}, or only empty ones")
            raise typer.Exit(Exit.NOT_FOUND)
        try:
            done = _run(found, source, stop, rate, again, as_json)
        except AlreadyRunningError as error:
            raise ConfigError(
                f"the backfill of {source} from {archive} is {error}; wait for its end, or stop it (Ctrl-C): this "
                "command goes on from there, with the options given now"
            ) from None
        _show_report(done, found.files)
        if is_unsealed(found):
            say("what is protected changed meanwhile: run `idgraph seal`")
        if stop.is_set() and done.files < found.files:
            say("stopped; the same command goes on from here")
            raise typer.Exit(Exit.INTERRUPTED)


def _run(found: Archive, source: str, stop: Event, rate: float | None, again: bool, as_json: bool) -> Tally:
    from idgraph.app.jobs.backfill import done_before, forget, run_backfill
    from idgraph.app.jobs.progress import showing

    if again:
        forget(found)
    before = done_before(found)

    def announce() -> None:
        begun = f"goes on after {counted(before.files, 'file')}" if before.files else "begins"
        say(f"the backfill of {source} {begun}: {counted(found.files, 'file')}")

    with showing(found.bytes, before.bytes) as show:
        show_report = _print_step if as_json else show

        def on_step(step: BackfillStep) -> None:
            log_batch(step.report)
            show_report(step)

        reporter = Reporter(on_step, stop)
        done = run_backfill(found, stop, rate, reporter, announce)
    reporter.check()
    return done


def _print_step(step: BackfillStep) -> None:
    left = step.seconds_left
    print_json(
        {
            **described(step.report),
            "files_done": step.done.files,
            "files_total": step.files,
            "events_done": step.done.events,
            "seconds_left": None if left is None else round(left, 1),
        }
    )
    sys.stdout.flush()


def _show_report(done: Tally, files: int) -> None:
    reported = [
        f"{done.files:,} of {counted(files, 'file')} done",
        counted(done.events, "event"),
        f"{counted(done.written, 'profile')} written",
    ]
    if done.dead_letters:
        reported.append(counted(done.dead_letters, "dead letter"))
    if done.conflicts:
        reported.append(counted(done.conflicts, "conflict"))
    say(", ".join(reported))
