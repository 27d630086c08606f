"""Servers for tests and development: there is one for as long as it is needed, or the reason why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.servers.dynamodb import dynamodb
from app.servers.processes import free_port, listens, running
from model.errors import ServerUnavailableError

SERVE = (
    "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), None).serve_forever()"
)


def test_without_java_there_is_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ServerUnavailableError, match="JAVA_HOME is /nowhere"), dynamodb(tmp_path):
        pass


def test_a_server_lives_as_long_as_its_context(tmp_path: Path) -> None:
    port = free_port()
    with running("it", [sys.executable, "-c", SERVE, str(port)], tmp_path / "log", lambda: listens(port)):
        assert listens(port)
    assert not listens(port)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    with (
        pytest.raises(ServerUnavailableError, match="it did not start; it said: the port is taken"),
        running("it", command, tmp_path / "log", lambda: False),
    ):
        pass
