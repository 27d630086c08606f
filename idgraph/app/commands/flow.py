"""`idgraph run` and `idgraph publish`: events in."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from idgraph.app.commands.context import settings_of
from idgraph.app.observation.json_logs import log_batch, say
from idgraph.app.payload_rows import Nulls
from idgraph.app.terminal import counted, print_json
from idgraph.model.counts import COUNTERS
from idgraph.model.errors import (
    AlreadyRunningError,
    ConfigError,
    FlowInterruptedError,
    PublishError,
    first_few,
)

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from ingestion.stages.outcomes import BatchReport

_STANDARD_INPUT = Path("-")

Report = TypeVar("Report")


def run(
    context: typer.Context,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Stop after the input that is there at the start.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per micro-batch.")] = False,
) -> None:
    """Run the flow: read new events of all sources, then build, store and index profiles.

    It runs until Ctrl-C, and the next run continues. Exit code 4: the flow stopped itself, because too many
    events became dead letters, or because of `flow.on_failure`.
    """
    from idgraph.app.flow_runner import run_flow
    from ingestion.sources.stream import Intake

    with stopping_on_signals() as stop:
        settings = settings_of(context)

        def announce() -> None:
            if not until_done:
                names = ", ".join(source.name for source in settings.sources)
                say(f"starting Spark; then the flow {settings.flow.name} follows {names}")

        show_report = print_batch_json if as_json else print_batch

        def on_batch(report: BatchReport) -> None:
            log_batch(report)
            show_report(report)

        reporter = Reporter(on_batch, stop)
        try:
            run_flow(settings, stop, Intake(until_done), reporter, announce)
        except AlreadyRunningError as error:
            raise ConfigError(
                f"the flow {settings.flow.name} is {error}; to run beside it, use another `[flow] name` with sources "
                "of its own"
            ) from None
        reporter.check()
        if stop.is_set() and not until_done:
            say("stopped; the next run continues from here")


class Reporter(Generic[Report]):
    """Reports micro-batches. If writing a report fails (a closed pipe, a full disk), it stops the flow as a
    signal would. A finished micro-batch must not fail because of its report."""

    def __init__(self, show_report: Callable[[Report], None], stop: threading.Event) -> None:
        self._failure: OSError | None = None
        self._show_report = show_report
        self._stop = stop

    def __call__(self, report: Report) -> None:
        try:
            self._show_report(report)
        except OSError as error:
            self._failure = error
            self._stop.set()

    def check(self) -> None:
        """Raise the error of the report, for `error_handler`."""
        if self._failure is not None:
            raise self._failure


def publish(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="Name of a configured source.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="JSON Lines, a JSON array, CSV with a header or Parquet, plain or gzip; default, or `-`: standard input.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Kafka only: dotted path of the record's key.", show_default=False),
    ] = None,
    null: Annotated[
        Nulls | None,
        typer.Option(
            help="Meaning of null, NaN or an empty cell: `keep` the stored value, or `delete` it. Default: delete in JSON, else keep.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Publish events to a source.

    JSON Lines pass unchanged; the flow checks them. Other formats are converted, a column to a key; values of
    CSV stay text. A file of another kind is refused before anything is published; an empty one has no events.
    """
    from idgraph.app.payload_files import STANDARD_INPUT, event_files
    from idgraph.app.publish import EVENTS_PER_FILE, publisher

    written: list[str] = []
    with publisher(_of_production(context), source, key, lambda file: written.append(file.name)) as give:
        _check_readable(files or [])
        total = 0

        def converted() -> Iterator[bytes]:
            for found in event_files(files or [STANDARD_INPUT], null):
                number = 0
                for number, line in enumerate(found.lines, 1):  # noqa: B007 - the number is used behind the loop
                    yield line
                if found.form:
                    say(f"{found.name}: {found.form}, converted to {counted(number, 'event')}")

        try:
            for chunk in _chunks(converted(), EVENTS_PER_FILE):
                total += give(chunk)
        except PublishError as error:
            total += error.published
            raise
        finally:
            # Also after a file that cannot be read to its end: the user must know what was published.
            names = f" in {', '.join(first_few(written))}" if written else ""
            say(f"published {counted(total, 'event')} to {source}{names}")


def _of_production(context: typer.Context) -> Settings:
    settings = settings_of(context)
    if settings.sandbox:
        raise ConfigError("a sandbox reads the sources of production: publish there, without --sandbox")
    return settings


def _check_readable(files: list[Path]) -> None:
    """Raises ConfigError before any file is published."""
    for file in files:
        if file == _STANDARD_INPUT:
            continue
        # Without opening it: the content of a pipe would be lost.
        if not file.exists():
            raise ConfigError(f"{file}: {os.strerror(errno.ENOENT)}")
        if file.is_dir():
            raise ConfigError(f"{file}: {os.strerror(errno.EISDIR)}")
        if not os.access(file, os.R_OK):
            raise ConfigError(f"{file}: {os.strerror(errno.EACCES)}")


def _chunks(lines: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    """Lines in chunks of one published file; also the lines before an error."""
    chunk: list[bytes] = []
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except ConfigError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


@contextmanager
def stopping_on_signals(unit: str = "micro-batch") -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; a second Ctrl-C interrupts at once. `unit` is finished first."""
    stop = threading.Event()
    previous = {}

    def ask(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        say(f"stopping after this {unit} (again to interrupt it)")
        stop.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        previous[name] = signal.signal(name, ask)
    try:
        yield stop
    except FlowInterruptedError as error:
        # The signal went to the whole process group, as from a service manager.
        say(str(error))
        raise KeyboardInterrupt from None
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)


def print_batch(report: BatchReport) -> None:
    """One line per micro-batch, for people."""
    counts = report.counts
    if not counts.events:
        return
    rate = counts.events / report.seconds
    print(
        f"batch {report.number}: {counted(counts.events, 'event')}, "
        f"{counted(counts.written, 'profile')} written{_exceptions(report)}, "
        f"{report.seconds:.2f} s ({rate:,.0f}/s), snapshot {report.snapshot_version}",
        flush=True,
    )


def _exceptions(report: BatchReport) -> str:
    """Counts that are zero in most micro-batches."""
    counts = report.counts
    numbers = (
        (counts.dead_letter_count(), counted(counts.dead_letter_count(), "dead letter")),
        (counts.isolated, f"{counts.isolated:,} isolated"),
        (counts.conflicts, counted(counts.conflicts, "conflict")),
        (counts.retries, f"{counts.retries:,} retried"),
        (report.attempts > 1, f"{report.attempts} attempts"),
        (counts.skipped, f"{counts.skipped:,} mapped to nothing"),
        (counts.undecrypted, f"{counts.undecrypted:,} not decrypted"),
        (counts.erased, f"{counts.erased:,} refused by tombstones"),
        (counts.dropped_changes, f"{counts.dropped_changes:,} new attributes not reported"),
    )
    return "".join(f", {words}" for number, words in numbers if number)


def print_batch_json(report: BatchReport) -> None:
    """One JSON line per micro-batch, for scripts."""
    print_json(described(report))
    sys.stdout.flush()


def described(report: BatchReport) -> dict[str, Any]:
    """The JSON object of a micro-batch: each counter by its name."""
    counted = {name: getattr(report.counts, name) for name in COUNTERS if name != "file_bytes"}
    return {
        "batch": report.number,
        "seconds": round(report.seconds, 4),
        "attempts": report.attempts,
        "snapshot": report.snapshot_version,
        "tasks": report.tasks,
        "dead_letters": report.counts.dead,
        **{name: round(each, 4) if name.endswith("_seconds") else each for name, each in counted.items()},
        "lag": dict(report.lag),
    }
