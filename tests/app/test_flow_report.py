"""A flow's report of itself, and its pauses."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from idgraph.app.commands.flows import _shown
from idgraph.app.observation.flow_report import FlowReporter, reporting
from idgraph.app.settings.document import Settings, load
from idgraph.model.errors import FlowStoppedError, SourceUnavailableError, StoreError
from idgraph.model.flows import FlowPause, FlowReport, Flows, FlowState, Straggler
from idgraph.model.topics import Behind
from ingestion.stages.outcomes import BatchReport, StageReport
from sinks.document_folder import DocumentFolder
from tests.app.conftest import CommandLine
from tests.support.patience import eventually

SNAPSHOTS: Any = SimpleNamespace(
    current=lambda: SimpleNamespace(snapshot=SimpleNamespace(version=7)), age=lambda: math.inf
)
KAFKA = """
[[sources]]
name = "web"
kind = "kafka"
topics = ["clicks"]
[[sources]]
name = "shops"
kind = "kafka"
topic_pattern = "shop-.*"
"""


def settings_of(folder: Path, sources: str = "") -> Settings:
    (folder / "idgraph.toml").write_text(f'[flow]\nname = "shop"\n{sources}')
    found = load(folder / "idgraph.toml")
    found.flow_state().mkdir(parents=True)
    return found


def flows_of(settings: Settings) -> Flows:
    return Flows(DocumentFolder(settings.directory))


def batch(number: int, events: int, seconds: float, **more: Any) -> BatchReport:
    return BatchReport(number, seconds, 7, 1, StageReport(events=events, **more))


def test_rates_are_of_the_latest_window(tmp_path: Path) -> None:
    now = [1000.0]
    lag = {
        "clicks/0": Behind(3, 50.0),
        "clicks/1": Behind(4, 2.0),
        "shop-eu/0": Behind(5),
        "shop-eu/1": Behind(0),
        "other/0": Behind(100),
    }
    settings = settings_of(tmp_path, KAFKA)
    reporter = FlowReporter(settings, SNAPSHOTS, None, lambda: lag, None, lambda: now[0])
    now[0] += 30
    reporter.add(batch(1, 1000, 9.0, map_seconds=5.0))
    now[0] += 30
    more = {"protected": 50, "written": 10, "unchanged": 10, "commit_seconds": 2.0, "map_seconds": 1.0}
    reporter.add(batch(2, 98, 0.2, dead={"no_spec": 2}, sources={"web": 98}, **more))
    reporter.add(batch(3, 2, 7.0, dead={"no_spec": 4}, sources={"web": 2}))
    now[0] += 40
    found = reporter.report(FlowState.RUNNING)
    assert (found.window_seconds, found.events_per_second) == (60, 100 / 60)
    assert found.commit_seconds_p99 == 7.0
    assert (found.set_aside_share, found.set_aside_reasons) == (0.06, {"no_spec": 6})
    assert (found.snapshot_version, found.snapshot_age_seconds) == (7, None)
    assert found.last_batch is not None
    assert (found.last_batch.number, found.last_batch.ended_ms) == (3, 1_060_000)
    stages = {each.stage: each for each in found.stages}
    assert list(stages) == ["map", "protect", "commit", "set aside"]
    assert stages["commit"].seconds_each == 0.1
    web, shops = found.sources
    assert (web.waiting, web.last_event_ms, web.per_second) == (7, 1_060_000, 100 / 60)
    assert web.straggler == Straggler(partition="clicks/0", waiting=3, seconds=50.0)
    assert shops.straggler == Straggler(partition="shop-eu/0", waiting=5)
    assert (shops.waiting, shops.last_event_ms, shops.per_second) == (5, None, 0)
    now[0] += 100
    idle = FlowReporter(settings, SNAPSHOTS, None, dict, found, lambda: now[0]).report(FlowState.STARTING)
    assert (idle.events_per_second, idle.commit_seconds_p99, idle.set_aside_share) == (0, None, 0)
    assert idle.last_batch == found.last_batch
    assert [each.last_event_ms for each in idle.sources] == [1_060_000, None]
    assert [each.waiting for each in idle.sources] == [None, None]


def test_what_cannot_be_asked_is_not_known(tmp_path: Path) -> None:
    def away() -> dict[str, Behind]:
        raise SourceUnavailableError("away")

    reporter = FlowReporter(settings_of(tmp_path, KAFKA), SNAPSHOTS, None, away, None)
    assert [each.waiting for each in reporter.report(FlowState.RUNNING).sources] == [None, None]


def test_a_flow_writes_what_it_does_and_how_it_ended(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    folders, name = flows_of(settings), settings.flow.name
    assert (folders.names(), folders.report(name)) == ([], None)
    is_ready = threading.Event()

    def state() -> FlowState | None:
        found = folders.report(name)
        return found.state if found else None

    with reporting(
        settings, flows_of(settings), SNAPSHOTS, None, dict, is_ready.is_set, lambda _: None
    ) as add:
        eventually(lambda: state() is FlowState.STARTING)
        is_ready.set()
        eventually(lambda: state() is FlowState.RUNNING)
        assert folders.pause(name, FlowPause(who="ann", why="a move", at_ms=1))
        assert not folders.pause(name, FlowPause(who="bob", why="", at_ms=2))
        eventually(lambda: state() is FlowState.PAUSED)
        add(batch(1, 5, 0.1))
        assert folders.resume(name)
        assert not folders.resume(name)
        eventually(lambda: state() is FlowState.RUNNING)
        is_ready.clear()
        written = (settings.flow_state() / "report.json").stat().st_mtime_ns
        eventually(lambda: (settings.flow_state() / "report.json").stat().st_mtime_ns > written)
        assert state() is FlowState.RUNNING, "while it stops"
    end = folders.report(name)
    assert end is not None
    assert (end.state, end.last_batch and end.last_batch.events) == (FlowState.STOPPED, 5)
    assert (settings.flow_state() / "report.json").stat().st_mode & 0o077 == 0
    with (
        pytest.raises(FlowStoppedError),
        reporting(settings, flows_of(settings), SNAPSHOTS, None, dict, is_ready.is_set, lambda _: None),
    ):
        raise FlowStoppedError("user_id:1 cannot be committed")
    failed = folders.report(name)
    assert failed is not None
    assert (failed.state, failed.problem) == (FlowState.FAILED, "FlowStoppedError")


def test_a_report_that_cannot_be_written_is_named_and_stops_no_flow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(tmp_path)
    settings.flow_state().rmdir()
    settings.flow_state().write_text("not a folder")
    seen: list[BatchReport] = []
    with reporting(settings, flows_of(settings), SNAPSHOTS, None, dict, lambda: True, seen.append) as add:
        add(batch(1, 5, 0.1))
    assert len(seen) == 1
    assert any(str(settings.flow_state() / "report.json") in each for each in caplog.messages)


def test_a_flow_that_was_killed_is_silent_and_not_running(tmp_path: Path) -> None:
    reporter = FlowReporter(settings_of(tmp_path), SNAPSHOTS, None, dict, None, lambda: 1000.0)
    running, ended = reporter.report(FlowState.RUNNING), reporter.report(FlowState.STOPPED)
    assert [running.is_silent(now) for now in (1005.0, 1071.0)] == [False, True]
    assert not ended.is_silent(1071.0)
    assert _shown("shop", running, None)[1] == "silent"


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    (settings.flow_state() / "report.json").write_text("{")
    with pytest.raises(StoreError):
        flows_of(settings).report("shop")
    (settings.flow_state() / "paused.json").write_text("")
    assert flows_of(settings).is_paused("shop")


def test_the_commands(with_keys: CommandLine) -> None:
    settings = with_keys.settings()
    name = settings.flow.name
    assert with_keys("flows", "pause", name, "--reason", "why").exit_code == 3
    settings.flow_state().mkdir(parents=True, exist_ok=True)
    reporter = FlowReporter(settings, SNAPSHOTS, None, dict, None)
    flows_of(settings).write(reporter.report(FlowState.RUNNING))
    assert name in with_keys("flows", "show").stdout
    assert with_keys("flows", "pause", name, "--reason", "a move\x1b[2J").exit_code == 0
    assert "a move" in with_keys("flows", "pause", name, "--why", "again").stderr
    table = with_keys("flows", "show").stdout
    assert "a move" in table
    assert "\x1b" not in table
    (shown,) = with_keys.json("flows", "show", "--json")
    assert FlowReport.model_validate(shown).name == name
    assert shown["pause"]["why"].startswith("a move")
    assert with_keys("flows", "resume", name).exit_code == 0
    assert with_keys.json("flows", "show", "--json")[0]["pause"] is None
    acts = [json.loads(line) for line in (settings.directory / "audit.jsonl").read_text().splitlines()]
    assert [each["action"] for each in acts] == ["keys init", "pause flow", "pause flow", "resume flow"]
    assert with_keys("audit", "verify").exit_code == 0
    # The flow's sources are files: it has no offsets.
    assert with_keys("flows").exit_code == 2


def test_a_report_has_the_figures_of_the_last_minutes(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text(f'[flow]\nname = "shop"\n{KAFKA}')
    now = [1_000_000.0]
    reporter = FlowReporter(
        load(file), SNAPSHOTS, None, lambda: {"clicks/0": Behind(5)}, None, lambda: now[0]
    )
    for _ in range(3000):
        now[0] += 1
        report = reporter.report(FlowState.RUNNING)
    steps = [after.at_ms - before.at_ms for before, after in pairwise(report.history)]
    assert set(steps) == {15_000}
    assert 78 <= len(report.history) <= 80
    assert report.history[-1].waiting == 5
    again = FlowReporter(load(file), SNAPSHOTS, None, dict, report, lambda: now[0] + 900)
    assert len(again.report(FlowState.RUNNING).history) < len(report.history)


def test_a_source_that_is_slower_than_its_input_is_named(tmp_path: Path) -> None:
    now, waiting = [1000.0], [0]
    part = "clicks/0"
    settings = settings_of(tmp_path, KAFKA)
    reporter = FlowReporter(
        settings, SNAPSHOTS, None, lambda: {part: Behind(waiting[0])}, None, lambda: now[0]
    )

    def reported(counts: Iterable[int]) -> list[bool]:
        found = []
        for count in counts:
            now[0] += 1
            waiting[0] = count
            web, _ = reporter.report(FlowState.RUNNING).sources
            found.append(web.falls_behind)
        return found

    assert not any(reported([500, 0, 900, 10] * 30)), "waves are no backlog"
    growing = reported(range(1000, 2000, 10))
    assert growing[-1]
    assert not any(reported([2000] * 100)[-30:]), "a backlog that stays is none that grows"
