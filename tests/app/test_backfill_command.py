"""`idgraph backfill` as far as it goes without Spark, and how it reports where it is; with Spark in tests/crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from idgraph.app.adapters.shared_state import job_log
from idgraph.app.jobs.context import LocalJobContext
from idgraph.app.settings.document import Settings
from idgraph.jobs.backfill import Archive, BackfillParameters, find_archive, prepare
from idgraph.model.errors import ConfigError, JobStoppedError
from idgraph.model.jobs import JobState, Progress, Requester
from idgraph.model.sources import FileSource
from ingestion.sources.stream import Intake
from ingestion.stages.outcomes import BatchReport, StageReport
from tests.app.conftest import CommandLine
from tests.retail import lines

ROOT = Path(__file__).parents[2]


ADA = Requester("ada")


def archive_of(settings: Settings, source: str, path: Path) -> Archive:
    with LocalJobContext(settings, ADA) as context:
        return find_archive(context, source, path)


@pytest.fixture
def archive(idgraph: CommandLine) -> Path:
    folder = idgraph.folder / "2023"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jsonl").write_bytes(b"\n".join(lines("orders", 10)) + b"\n")
    return folder


def test_an_archive_has_a_checkpoint_of_its_own(idgraph: CommandLine, archive: Path) -> None:
    settings = idgraph.settings()
    found = archive_of(settings, "orders", archive)
    assert found.files == 3
    assert found.bytes == sum(file.stat().st_size for file in archive.iterdir())
    source = found.source
    assert isinstance(source, FileSource)
    assert (source.name, source.path) == ("orders", archive)
    assert source.type == settings.file_source("orders").type
    assert found.flow.state != settings.flow_state()
    assert found.flow.state == archive_of(settings, "orders", Path("2023")).flow.state
    assert found.flow.state != archive_of(settings, "orders", archive / "1.jsonl").flow.state
    assert found.flow.state != archive_of(settings, "segment", archive).flow.state


def test_an_archive_that_holds_what_is_no_event_of_its_source_is_refused(
    idgraph: CommandLine, archive: Path
) -> None:
    settings = idgraph.settings()
    (idgraph.folder / "link").symlink_to(idgraph.folder)
    for place in (idgraph.folder, idgraph.folder / "link", settings.file_source("segment").path):
        place.mkdir(parents=True, exist_ok=True)
        with pytest.raises(ConfigError, match="no events of orders"):
            archive_of(settings, "orders", place)
    assert idgraph("backfill", "orders", "").exit_code == 2


def test_sources_whose_long_names_begin_alike_have_backfills_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    names = ["s" * 40 + end for end in "12"]
    sources = [{"name": name, "path": str(tmp_path / name)} for name in names]
    settings = Settings(directory=tmp_path / ".idgraph", sources=sources)
    one, other = (archive_of(settings, name, tmp_path / "archive").flow.state for name in names)
    assert one != other


def test_a_name_at_its_longest_is_still_one_of_a_flow(idgraph: CommandLine, archive: Path) -> None:
    settings = idgraph.settings()
    long = settings.file_source("orders").model_copy(update={"name": "x" * 64})
    found = archive_of(settings.model_copy(update={"sources": (long,)}), "x" * 64, archive)
    assert len(found.flow.name) <= 64


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (("nothing", "2023"), 2, "no source is called 'nothing'"),
        (("orders", "2022"), 2, "there is no such directory or file"),
        (("orders", "2023/*.csv"), 3, "no file in 2023/*.csv"),
        (("orders", "2023", "--rate", "0"), 2, "--rate"),
    ],
)
def test_what_cannot_be_taken_is_reported(
    idgraph: CommandLine, archive: Path, words: tuple[str, ...], code: int, reported: str
) -> None:
    result = idgraph("backfill", *words)
    assert (result.exit_code, reported in result.stderr) == (code, True), result.output


def run_with(program: str, idgraph: CommandLine, *words: str) -> subprocess.CompletedProcess[bytes]:
    """The command as it is, but for the flow itself."""
    command = [sys.executable, "-c", program, "-c", f"{idgraph.folder}/idgraph.toml", "backfill", *words]
    return subprocess.run(
        command,
        cwd=idgraph.folder,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


FLOW = """
from idgraph.app import cli, flow_runner, wiring
from ingestion.sources.stream import Intake
from ingestion.stages.outcomes import BatchReport, StageReport

def run_flow(settings, stop, intake, on_batch, on_start, sealed_by):
    assert intake.until_done
    wiring.prepare_directory(settings)
    on_start()
    (settings.flow_state() / "checkpoint").mkdir(exist_ok=True)
    (settings.flow_state() / "checkpoint" / "metadata").write_text('{"id":"q"}')
    for number in range(BATCHES):
        size = settings.sources[0].path.joinpath("0.jsonl").stat().st_size
        counts = StageReport(files=1, file_bytes=size, events=10, written=9, conflicts=1)
        on_batch(BatchReport(number, 1.0, 1, 1, counts, batch=f"backfill/q/{number}"))
        if number == STOPPED:
            stop.set()
            return

flow_runner.run_flow = run_flow
cli.main()
"""


JSON_LOGS = """
import sys
sys.argv[1:1] = ["--log-format", "json"]
cli.main()
"""


def program(batches: int, stopped: int = -1) -> str:
    return FLOW.replace("BATCHES", str(batches)).replace("STOPPED", str(stopped))


def test_plain_lines_and_a_summary_without_a_terminal(with_keys: CommandLine, archive: Path) -> None:
    done = run_with(program(3), with_keys, "orders", str(archive))
    assert done.returncode == 0, done.stderr
    reported = done.stderr.decode()
    assert "the backfill of orders begins: 3 files" in reported
    assert "3 of 3 files, 30 events, 27 written, 3 conflicts" in reported
    assert done.stdout == b""
    assert "\x1b" not in reported


def test_stopped_before_its_end_it_says_so_and_goes_on(with_keys: CommandLine, archive: Path) -> None:
    done = run_with(program(3, stopped=1), with_keys, "orders", str(archive))
    assert (done.returncode, b"the same command resumes it" in done.stderr) == (130, True), done.stderr
    again = run_with(program(0), with_keys, "orders", str(archive))
    assert b"the backfill of orders resumes after 2: 3 files" in again.stderr
    anew = run_with(program(0), with_keys, "orders", str(archive), "--again")
    assert b"the backfill of orders begins: 3 files" in anew.stderr


def test_json_is_an_object_a_micro_batch(with_keys: CommandLine, archive: Path) -> None:
    done = run_with(program(2), with_keys, "orders", str(archive), "--json")
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["files_done"], first["files_total"], first["seconds_left"]) == (1, 3, None)
    assert (second["batch"], second["events"], second["events_done"]) == (1, 10, 20)
    assert second["seconds_left"] >= 0


def test_as_json_logs_it_says_nothing_else(with_keys: CommandLine, archive: Path) -> None:
    with_json_logs = program(3, stopped=1).replace("cli.main()", JSON_LOGS)
    done = run_with(with_json_logs, with_keys, "orders", str(archive), "--json")
    assert done.returncode == 130
    reported = [json.loads(line) for line in done.stderr.splitlines()]
    assert reported[0]["message"] == "the backfill of orders begins: 3 files"
    assert [each["batch"] for each in reported if each["message"] == "micro-batch done"] == [
        "backfill/q/0",
        "backfill/q/1",
    ]
    assert reported[-1]["message"] == "stopped; the same command resumes it"


def test_a_backfill_runs_once(with_keys: CommandLine, archive: Path) -> None:
    with LocalJobContext(with_keys.settings(), ADA) as context:
        job = prepare(BackfillParameters(source="orders", archive=archive), context)
        assert job is not None
        with context.runner.started(job, ADA) as run:
            for options in ([], ["--again"], ["--rate", "5"]):
                result = with_keys("backfill", "orders", archive, *options)
                assert result.exit_code == 2, options
                assert run.id in result.stderr
                assert "begins" not in result.stderr
        found = find_archive(context, "orders", archive)
    assert not (found.flow.state / "checkpoint").exists()


class Batches:
    """Micro-batches in place of the flow, each of a file."""

    def __init__(self, idgraph: CommandLine, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = idgraph.settings()
        self.parameters = BackfillParameters(source="orders", archive=archive)
        self.checkpoint = archive_of(self.settings, "orders", archive).flow.state / "checkpoint"
        monkeypatch.setattr("idgraph.app.flow_runner.run_flow", self.run_flow)

    def run_flow(
        self,
        _settings: Settings,
        _stop: threading.Event,
        _intake: Intake,
        on_batch: Callable[[BatchReport], None],
        on_start: Callable[[], None],
        _sealed_by: str | None,
    ) -> None:
        on_start()
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": self.query}))
        for number, events in self.batches:
            counts = StageReport(files=1, events=events, written=events, dead={"not_json": 1})
            on_batch(BatchReport(number, 1.0, 1, 1, counts, batch=f"backfill/{self.query}/{number}"))

    def take(
        self,
        *batches: tuple[int, int],
        query: str = "q1",
        on_batch: Callable[[BatchReport], None] = lambda _: None,
    ) -> Progress:
        self.batches, self.query = batches, query
        with LocalJobContext(self.settings, ADA) as context:
            job = prepare(self.parameters, context, on_batch=on_batch)
            assert job is not None
            return context.runner.run(job, ADA)


@pytest.fixture
def batches(with_keys: CommandLine, archive: Path, monkeypatch: pytest.MonkeyPatch) -> Batches:
    return Batches(with_keys, archive, monkeypatch)


def test_a_micro_batch_that_is_retried_counts_once(batches: Batches) -> None:
    batches.take((0, 100))
    batches.take((1, 50))
    done = batches.take((1, 60), (2, 1))
    assert done.done == 3
    assert done.counts == {"events": 161, "written": 161, "dead_letters": 3, "conflicts": 0}
    with job_log(batches.settings) as log:
        (job,) = log.scan()
    assert (job.progress.done, job.state) == (3, JobState.DONE)


def test_of_another_checkpoint_nothing_counts(batches: Batches) -> None:
    batches.take((0, 100))
    assert batches.take((0, 7), query="q2").counts["events"] == 7
    batches.checkpoint.joinpath("metadata").unlink()
    assert batches.take(query="q2").done == 0


def test_a_backfill_is_cancelled_after_its_micro_batch(batches: Batches) -> None:
    def cancel(_: BatchReport) -> None:
        with job_log(batches.settings) as log:
            assert log.cancel(next(log.scan()).id)

    with pytest.raises(JobStoppedError):
        batches.take((0, 100), on_batch=cancel)
    with job_log(batches.settings) as log:
        (job,) = log.scan()
    assert (job.progress.done, job.state) == (1, JobState.CANCELLED)
    assert batches.take((1, 1)).done == 2
