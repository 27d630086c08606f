"""`idgraph jobs`, and how far a job is for whoever watches it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from idgraph.app.jobs import view
from idgraph.app.jobs.view import line
from idgraph.jobs.export import Export
from idgraph.jobs.job import Pace, Plan, Run
from idgraph.model.jobs import Progress
from idgraph.model.text import duration
from tests.app.conftest import CommandLine
from tests.app.processes import program

ROOT = Path(__file__).parents[2]


def test_a_job_is_listed_and_shown(filled: CommandLine) -> None:
    assert filled("jobs", "list").exit_code == 0
    assert filled("keys", "rotate", "--who", "ada", "--why", "the yearly one").exit_code == 0
    (job,) = filled.json("jobs", "list", "--json")
    assert (job["kind"], job["state"], job["who"], job["why"]) == ("rotate", "done", "ada", "the yearly one")
    assert job["done"] == job["total"] == job["counts"]["rewrapped"] > 10
    (shown,) = filled.json("jobs", "show", job["id"], "--json")
    assert shown == {**job, "notes": {}, "error": ""}
    assert "the yearly one" in filled("jobs", "show", job["id"]).stdout
    assert job["id"] in filled("jobs", "list", "--kind", "rotate").stdout
    assert filled.json("jobs", "list", "--kind", "erase", "--json") == []


def test_what_is_not_there_or_not_running_is_not_cancelled(filled: CommandLine) -> None:
    assert filled("jobs", "show", "nothing").exit_code == 3
    assert filled("jobs", "cancel", "nothing").exit_code == 3
    filled("keys", "rotate")
    (job,) = filled.json("jobs", "list", "--json")
    assert filled("jobs", "cancel", job["id"]).exit_code == 1


def test_a_job_is_cancelled_from_another_process(filled: CommandLine) -> None:
    process = subprocess.Popen(
        program(filled, "keys", "rotate", "--rate", "1"), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (running := filled.json("jobs", "list", "--json")) or not running[0]["done"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job_id = running[0]["id"]
    assert filled("keys", "rotate").exit_code == 2, "one at a time"
    assert filled("jobs", "cancel", job_id).exit_code == 0
    assert job_id in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    (job,) = filled.json("jobs", "list", "--json")
    assert (job["state"], job["done"] < job["total"]) == ("cancelled", True)
    (done,) = filled.json("keys", "rotate", "--json")
    assert done["resumed"]
    (job,) = filled.json("jobs", "list", "--json")
    assert (job["id"], job["state"]) == (job_id, "done")


def runs(progress: Progress) -> Run:
    return Run(
        Export(progress.total, None, {}),
        "1",
        Plan("the work", progress.total),
        progress,
        {},
        Pace(),
        lambda _: False,
    )


def test_without_a_terminal_there_are_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "LINE_SECONDS", 0.0)
    progress = Progress(2000, "data key")
    with view.showing() as show:
        for done in range(0, 3001, 1000):
            progress.done = done
            show(runs(progress))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "the work begins: 2,000 data keys"
    assert lines[1].startswith("1,000 of 2,000 data keys")
    assert lines[3].startswith("3,000 of 3,000 data keys"), "a total that was passed is what was done"


def test_progress_in_words() -> None:
    progress = Progress(3, "file", 2)
    progress.counts.update({"events": 1200, "dead_letters": 1, "values/a.b": 7, "conflicts": 0})
    assert line(progress, 200.0) == "2 of 3 files, 1,200 events, 1 dead letter, about 3 min left"
    assert [duration(each) for each in (0.4, 40, 300, 12_000)] == ["0 s", "40 s", "5 min", "3 h 20 min"]


def test_lines_are_json_where_messages_are(filled: CommandLine) -> None:
    words = program(filled, "--log-format", "json", "keys", "rotate")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [json.loads(each)["message"] for each in done.stderr.splitlines()]
