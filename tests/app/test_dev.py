"""What `idgraph dev up` does besides starting: tests/e2e/test_dev_up.py has the servers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from idgraph.app.dev import machine as dev
from tests.ingestion.patience import eventually


def test_a_server_that_ends_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "WATCH_SECONDS", 0.01)
    reported: list[str] = []

    def reported_by_now() -> bool:
        reported.append(capsys.readouterr().err)
        return bool("".join(reported))

    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stays,
        subprocess.Popen([sys.executable, "-c", ""]) as ends,
        dev._watched({"Kafka": stays, "DynamoDB Local": ends}, Path("made")),
    ):
        eventually(reported_by_now)
        assert stays.stdin
        stays.stdin.close()
        eventually(lambda: reported_by_now() and "Kafka" in "".join(reported))
    lines = "".join(reported).splitlines()
    assert [line.partition(" has ended")[0] for line in lines] == ["DynamoDB Local", "Kafka"]
    assert all(
        line.endswith("(its log is in made); Ctrl-C, then start again: nothing is lost") for line in lines
    )
