"""Jars out of Maven Central, fetched once for all processes of a user and checked by digest whenever they are used.

Fetched with the Ivy that is in PySpark, so nothing but Java is needed. What is run is pinned by a list of files and
their SHA-256 beside this module: a file that is missing, too many or another is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from app.java import require_java
from model.errors import ConfigError, ServerUnavailableError

FETCH_SECONDS = 600


class Artifact(NamedTuple):
    """One module of Maven Central, with all that it depends on."""

    group: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"


def cache_folder() -> Path:
    """Where fetched jars stay: in the user's cache, since all installations share them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idgraph" / "servers"


def jars(artifact: Artifact) -> Path:
    """The folder with the jars and native libraries of an artifact; fetches them when they are not there yet,
    which takes a minute or two.

    Raises ServerUnavailableError with the reason when they cannot be had, or are not those of the list.
    """
    wanted = _wanted(artifact)
    folder = cache_folder() / str(artifact)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _alone(cache_folder() / f"{artifact}.lock"):
        if not folder.is_dir():
            _fetch(artifact, wanted, folder)
        if (wrong := _wrong(folder, wanted)) is not None:
            raise ServerUnavailableError(f"{folder}: {wrong}; remove the folder to fetch it again")
    return folder


def _wanted(artifact: Artifact) -> dict[str, str]:
    listed = Path(__file__).with_name(f"{artifact}.sha256").read_text(encoding="ascii").split()
    return dict(zip(listed[1::2], listed[::2], strict=True))


def _fetch(artifact: Artifact, wanted: dict[str, str], folder: Path) -> None:
    try:
        java = require_java()
    except ConfigError as error:
        raise ServerUnavailableError(str(error)) from None
    # Beside its place, so that it comes there by rename: whole or not at all.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
        fetched = Path(scratch) / "jars"
        pattern = f"{fetched}/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, "-jar", str(_ivy()), "-cache", f"{scratch}/ivy", "-confs", "default"]
        command += ["-dependency", *artifact, "-retrieve", pattern]
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ServerUnavailableError(
                f"{artifact} could not be fetched from Maven Central within {FETCH_SECONDS} s"
            ) from None
        if done.returncode or not fetched.is_dir():
            said = [line.strip() for line in done.stdout.splitlines() if "WARN" in line or "ERROR" in line]
            why = (said or done.stderr.strip().splitlines() or ["Ivy gave no reason"])[0]
            raise ServerUnavailableError(f"{artifact} could not be fetched from Maven Central: {why}")
        for file in fetched.iterdir():
            if file.name not in wanted:
                # Ivy may find a library for another system as well; none is needed that is not in the list.
                file.unlink()
        if (wrong := _wrong(fetched, wanted)) is not None:
            raise ServerUnavailableError(f"what Maven Central gave is not {artifact}: {wrong}")
        shutil.move(fetched, folder)


def _wrong(folder: Path, wanted: dict[str, str]) -> str | None:
    """What is not as the list says. Of a file too many, too: all that lies in the folder is run."""
    found = {file.name: file for file in folder.iterdir()}
    for name in sorted(found.keys() | wanted.keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in wanted:
            return f"{name} is not in the list"
        if hashlib.sha256(found[name].read_bytes()).hexdigest() != wanted[name]:
            return f"{name} is not the file it should be"
    return None


def _ivy() -> Path:
    spec = find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise ServerUnavailableError("PySpark's jars hold no Ivy to fetch others with")
    return found[-1]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
