"""The launchers of servers: a server lives as long as its context, or there is a reason why not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installation import until
from tests.support import kafka
from tests.support.processes import ServerUnavailableError, free_port, listens, running
from tests.support.stores import dynamodb

ROOT = Path(__file__).resolve().parents[2]
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


def test_another_program_on_its_port_is_reported(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ServerUnavailableError, match="another program does already"),
        running("it", ["false"], tmp_path / "log", lambda: listens(other.getsockname()[1])),
    ):
        pass


def test_a_server_ends_with_who_started_it_however_that_ends(tmp_path: Path) -> None:
    port = free_port()
    starter = (
        "import os, pathlib, signal, sys\n"
        "from tests.support.processes import listens, running\n"
        f"with running('it', [sys.executable, '-c', {SERVE!r}, '{port}'], pathlib.Path('log'), lambda: listens({port})):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", starter], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )
    assert died.returncode == -signal.SIGKILL
    until(lambda: not listens(port), 60, "the server's end")


def test_no_id_of_a_kafka_cluster_looks_like_an_option() -> None:
    """One in 64 would: some thirty of these."""
    assert not [each for each in (kafka._cluster_id() for _ in range(2000)) if each.startswith("-")]
