"""`idgraph run` and `idgraph publish`: events in."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from idgraph.app.commands.context import settings_of
from idgraph.app.exits import error_handler
from idgraph.app.observation.json_logs import log_batch, say
from idgraph.app.terminal.output import counted, print_json
from idgraph.model.counts import COUNTERS
from idgraph.model.errors import AlreadyRunningError, ConfigError, FlowInterruptedError, PublishError

if TYPE_CHECKING:
    from ingestion.stages.outcomes import BatchReport

EVENTS_PER_FILE = 50_000
_STANDARD_INPUT = Path("-")

Reported = TypeVar("Reported")


def run(
    context: typer.Context,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Stop when what is there at the start is done.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a micro-batch.")] = False,
) -> None:
    """Run the flow: read what is new of all sources, build, store and index profiles.

    Runs until Ctrl-C. However it ends, the next run goes on where it stopped. Exit code 4 when it stopped
    itself: too many events became dead letters, or `flow.on_failure` says to stop.
    """
    from idgraph.app.flow_runner import run_flow
    from ingestion.sources.stream import Intake

    with error_handler(), stopping_on_signals() as stop:
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
            say("stopped; the next run goes on from here")


class Reporter(Generic[Reported]):
    """Reports micro-batches until nobody listens any more, or the disk is full that it reports it to; then the flow ends as
    if it were asked to: a micro-batch that is done must not fail because of it."""

    def __init__(self, show_report: Callable[[Reported], None], stop: threading.Event) -> None:
        self._failure: OSError | None = None
        self._show_report = show_report
        self._stop = stop

    def __call__(self, report: Reported) -> None:
        try:
            self._show_report(report)
        except OSError as error:
            self._failure = error
            self._stop.set()

    def check(self) -> None:
        """Raises why nobody listens any more, for `error_handler`."""
        if self._failure is not None:
            raise self._failure


def publish(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="Name of a configured source.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="JSON Lines files, plain or gzip'd; standard input if left out or `-`.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="To Kafka: dotted path of what each record has as its key.", show_default=False),
    ] = None,
) -> None:
    """Publish events to a source. Lines are passed on as they are; the flow judges them."""
    from idgraph.app.publish import publisher

    with error_handler(), publisher(settings_of(context), source, key) as give:
        _check_readable(files or [])
        total = 0
        try:
            for chunk in _chunks(_lines(files or [])):
                total += give(chunk)
        except PublishError as error:
            total += error.published
            raise
        finally:
            # Also of a file that cannot be read to its end: who gives it again must know what is there already.
            say(f"published {counted(total, 'event')} to {source}")


def _check_readable(files: list[Path]) -> None:
    """Raises ConfigError before anything of the others is published."""
    for file in files:
        if file == _STANDARD_INPUT:
            continue
        # Not by opening it: what comes through a pipe would be gone.
        if not file.exists():
            raise ConfigError(f"{file}: {os.strerror(errno.ENOENT)}")
        if file.is_dir():
            raise ConfigError(f"{file}: {os.strerror(errno.EISDIR)}")
        if not os.access(file, os.R_OK):
            raise ConfigError(f"{file}: {os.strerror(errno.EACCES)}")


def _chunks(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Lines, a file's worth at a time; those before an error too."""
    chunk: list[bytes] = []
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == EVENTS_PER_FILE:
                yield chunk
                chunk = []
    except ConfigError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _lines(files: list[Path]) -> Iterator[bytes]:
    from idgraph.app.payload_lines import unpacked

    for file in files or [_STANDARD_INPUT]:
        named = "standard input" if file == _STANDARD_INPUT else file
        try:
            raw = sys.stdin.buffer if file == _STANDARD_INPUT else file.open("rb")
            with raw, unpacked(raw) as stream:
                yield from (line for line in map(_ended, stream) if not line.isspace())
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            raise ConfigError(f"{named}: {reason}; what could be read before was published") from None


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


@contextmanager
def stopping_on_signals(unit: str = "micro-batch") -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; a second Ctrl-C interrupts at once. `unit` is what is finished first."""
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
        # The signal went to all of the group, as a service manager's does.
        say(str(error))
        raise KeyboardInterrupt from None
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)


def print_batch(report: BatchReport) -> None:
    """A line a micro-batch, for people."""
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
    """What does not happen in most micro-batches."""
    counts = report.counts
    reported = (
        (counts.dead_letter_count(), counted(counts.dead_letter_count(), "dead letter")),
        (counts.isolated, f"{counts.isolated:,} isolated"),
        (counts.conflicts, counted(counts.conflicts, "conflict")),
        (counts.retries, f"{counts.retries:,} tried again"),
        (report.attempts > 1, f"given {report.attempts} times"),
        (counts.skipped, f"{counts.skipped:,} mapped to nothing"),
        (counts.undecrypted, f"{counts.undecrypted:,} not decrypted"),
        (counts.erased, f"{counts.erased:,} refused by tombstones"),
        (counts.unindexed, f"{counts.unindexed:,} waiting for the index"),
        (counts.dropped_changes, f"{counts.dropped_changes:,} new attributes not reported"),
    )
    return "".join(f", {words}" for number, words in reported if number)


def print_batch_json(report: BatchReport) -> None:
    """A JSON line a micro-batch, for scripts."""
    print_json(described(report))
    sys.stdout.flush()


def described(report: BatchReport) -> dict[str, Any]:
    """A micro-batch as JSON reports it: each counter by its name, `dropped_changes` as `untold`."""
    counted = {name: getattr(report.counts, name) for name in COUNTERS if name != "file_bytes"}
    counted["untold"] = counted.pop("dropped_changes")
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
