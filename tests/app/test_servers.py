"""Servers for tests and development: jars are what they should be, or there is no server, with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.servers import jars
from app.servers.dynamodb import DYNAMODB_LOCAL
from app.servers.processes import free_port, listens, running
from model.errors import ServerUnavailableError

SERVE = (
    "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), None).serve_forever()"
)


def test_a_file_that_was_altered_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"other")
    with pytest.raises(ServerUnavailableError, match=r"a\.jar .* is not the file it should be"):
        jars._check(tmp_path, {"a.jar": "0" * 64})


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    (tmp_path / "more.jar").write_bytes(b"not asked for")
    with pytest.raises(ServerUnavailableError, match=r"did not give b\.jar"):
        jars._check(tmp_path, {"b.jar": "0" * 64})
    assert not (tmp_path / "more.jar").exists()


def test_a_cache_that_lost_a_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (jars.cache_folder() / str(DYNAMODB_LOCAL)).mkdir(parents=True)
    with pytest.raises(ServerUnavailableError, match="remove the folder to fetch it again"):
        jars.jars(DYNAMODB_LOCAL)


def test_without_java_there_is_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ServerUnavailableError, match="JAVA_HOME is /nowhere"):
        jars.jars(DYNAMODB_LOCAL)
    assert not (jars.cache_folder() / str(DYNAMODB_LOCAL)).exists()


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
