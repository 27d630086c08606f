"""Finding Java, and what is said when something else answers to its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.app import java
from idgraph.app.java import require_java
from idgraph.model.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def answering(home: Path, script: str) -> None:
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.process
@pytest.mark.parametrize("version", ["17.0.9", "21", "1.25.0"])
def test_a_new_one_is_taken(version: str, home: Path) -> None:
    answering(home, f"echo 'openjdk version \"{version}\"' >&2")
    require_java()


@pytest.mark.process
def test_an_old_one_is_refused_with_what_installs_another(home: Path) -> None:
    answering(home, "echo 'java version \"1.8.0_292\"' >&2")
    with pytest.raises(ConfigError, match=r"is Java 8; Spark needs 17 or newer\. Install it with"):
        require_java()


@pytest.mark.process
def test_one_that_cannot_start_is_quoted(home: Path) -> None:
    answering(home, "echo 'Error occurred during initialization of VM' >&2; echo 'no memory' >&2; exit 1")
    with pytest.raises(ConfigError) as caught:
        require_java()
    assert "exit code 1; it said: Error occurred during initialization of VM / no memory)" in str(
        caught.value
    )


@pytest.mark.process
def test_one_that_never_answers_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "VERSION_SECONDS", 0.2)
    answering(home, "exec sleep 50")
    with pytest.raises(ConfigError, match=r"java -version gave no answer within 0\.2 s"):
        require_java()
