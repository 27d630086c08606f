"""The demo, as far as it goes without Spark."""

from __future__ import annotations

import logging
import re
import shutil
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from idgraph.app.cli import app
from idgraph.app.demo import walk as demo
from idgraph.app.demo.example import EXAMPLES
from idgraph.app.settings.document import Settings, load
from idgraph.model.identity_rules import IdentityRules
from ingestion.stages.outcomes import StageReport
from metadata_service.identity_rules import RULES
from metadata_service.storage.database import open_database
from tests.app.conftest import CommandLine
from tests.support.processes import free_port


@pytest.fixture(autouse=True)
def _other_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run at the same time would take them from each other."""
    monkeypatch.setattr(demo, "PORTS", (0, 0))


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
    monkeypatch.setattr("idgraph.app.demo.example.Example.files", lambda *_: iter([("orders", [b"{}\n"])]))
    stop = threading.Event()
    monkeypatch.setattr(demo, "RunningFlow", lambda _: _Flow(stop))
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo("retail", tmp_path / "demo", stop)


def test_an_example_may_have_its_own_identity_rules(
    idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "examples" / "retail"
    shutil.copytree(EXAMPLES / "retail", folder, ignore=shutil.ignore_patterns("data"))
    (folder / "identity-rules.json").write_text('{"hub_limit": 7}')
    monkeypatch.setattr("idgraph.app.demo.example.EXAMPLES", folder.parent)
    monkeypatch.setattr(demo, "require_java", lambda: None)
    monkeypatch.setattr("idgraph.app.demo.example.Example.files", lambda *_: iter([("orders", [b"{}\n"])]))
    stop = threading.Event()
    monkeypatch.setattr(demo, "RunningFlow", lambda _: _Flow(stop))
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo("retail", tmp_path / "demo", stop)
    database = open_database(f"sqlite:///{tmp_path / 'demo' / '.idgraph' / 'metadata.db'}")
    with database.read() as session:
        assert RULES.get(session) == IdentityRules(hub_limit=7)
    database.close()


@pytest.mark.parametrize("is_taken", [False, True])
def test_it_takes_the_ports_of_the_readme_where_they_are_free(
    is_taken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "idgraph.toml").write_text('[metadata]\nurl = "http://127.0.0.1:8410"\n')
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"http://127\.0\.0\.1:(\d+)", readme)) == {str(Settings().profiles.port)}
    ports = free_port(), free_port()
    monkeypatch.setattr(demo, "PORTS", ports)
    with ExitStack() as stack:
        for port in ports if is_taken else ():
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        demo._choose_ports(tmp_path / "idgraph.toml")
    settings = load(tmp_path / "idgraph.toml")
    chosen = int(settings.metadata.url.rpartition(":")[2]), settings.profiles.port
    assert (chosen == ports) is not is_taken
    assert not is_taken or not {*chosen} & {*ports}


@pytest.mark.parametrize("options", [[], ["-v"]])
def test_what_the_flow_does_in_the_background_is_reported_on_request(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def run_demo(*_: object) -> None:
        flow = logging.getLogger("idgraph.jobs.reencrypt.policy_change")
        heard.extend(level for level in ("INFO", "WARNING") if flow.isEnabledFor(getattr(logging, level)))

    monkeypatch.setattr(demo, "run_demo", run_demo)
    assert CliRunner().invoke(app, [*options, "demo"]).exit_code == 0
    assert heard == (["INFO", "WARNING"] if options else ["WARNING"])
