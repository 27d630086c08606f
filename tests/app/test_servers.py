"""Servers for tests and development: jars are what they should be, or there is no server, with the reason."""

from __future__ import annotations

import hashlib
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


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an artifact of two files that were fetched before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    content = {"a.jar": b"one", "b.so": b"two"}
    wanted = {name: hashlib.sha256(each).hexdigest() for name, each in content.items()}
    monkeypatch.setattr(jars, "_wanted", lambda _: wanted)
    folder = jars.cache_folder() / str(DYNAMODB_LOCAL)
    folder.mkdir(parents=True)
    for name, each in content.items():
        (folder / name).write_bytes(each)
    return folder


def test_what_is_kept_is_used_as_long_as_it_is_what_it_should_be(kept: Path) -> None:
    assert jars.jars(DYNAMODB_LOCAL) == kept


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jar", b"other", "a.jar is not the file it should be"),
        ("b.so", None, "b.so is missing"),
        ("more.jar", b"not asked for", "more.jar is not in the list"),
    ],
)
def test_what_is_kept_is_checked_whenever_it_is_used(
    kept: Path, name: str, content: bytes | None, told: str
) -> None:
    if content is None:
        (kept / name).unlink()
    else:
        (kept / name).write_bytes(content)
    with pytest.raises(ServerUnavailableError) as caught:
        jars.jars(DYNAMODB_LOCAL)
    assert str(caught.value) == f"{kept}: {told}; remove the folder to fetch it again"


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
