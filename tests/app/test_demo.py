"""The demo, as far as it goes without Spark."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from app import demo
from ingestion.outcomes import StageReport
from tests.app.conftest import CommandLine


class _Flow:
    """A flow that is asked to stop while it waits for its first events."""

    counts = StageReport()

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> _Flow:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, _seconds: float) -> None:
        self._stop.set()


def test_a_demo_that_is_stopped_in_its_middle_does_not_end_as_if_done(
    idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "require_java", lambda: None)
    monkeypatch.setattr("app.demo_example.Example.files", lambda *_: iter([("orders", [b"{}\n"])]))
    stop = threading.Event()
    monkeypatch.setattr(demo, "RunningFlow", lambda _: _Flow(stop))
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo("retail", tmp_path / "demo", stop)
