"""Jars out of Maven Central: they are what they should be, or are not used, with the reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from idgraph.app import java
from idgraph.model.errors import ConfigError
from tests.support.stores import DYNAMODB_LOCAL


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an artifact of two files that were fetched before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    content = {"a.jar": b"one", "b.so": b"two"}
    wanted = {name: hashlib.sha256(each).hexdigest() for name, each in content.items()}
    monkeypatch.setattr(java, "_digests", lambda _: wanted)
    folder = java.cache_folder() / DYNAMODB_LOCAL.name
    folder.mkdir(parents=True)
    for name, each in content.items():
        (folder / name).write_bytes(each)
    return folder


def test_a_folder_that_cannot_be_made_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    with pytest.raises(ConfigError, match="/dev/null/cache/idgraph/servers: cannot be made: Not a directory"):
        java.jars(DYNAMODB_LOCAL)


def test_what_is_kept_is_used_as_long_as_it_is_what_it_should_be(kept: Path) -> None:
    assert java.jars(DYNAMODB_LOCAL) == kept


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("a.jar", b"other", "a.jar is not the file it should be"),
        ("b.so", None, "b.so is missing"),
        ("more.jar", b"not asked for", "more.jar is not in the list"),
    ],
)
def test_what_is_kept_is_checked_whenever_it_is_used(
    kept: Path, name: str, content: bytes | None, reported: str
) -> None:
    if content is None:
        (kept / name).unlink()
    else:
        (kept / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        java.jars(DYNAMODB_LOCAL)
    assert str(caught.value) == f"{kept}: {reported}; remove the folder to fetch it again"


@pytest.mark.process
def test_without_java_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigError, match="JAVA_HOME is /nowhere"):
        java.jars(DYNAMODB_LOCAL)
    assert not (java.cache_folder() / DYNAMODB_LOCAL.name).exists()
