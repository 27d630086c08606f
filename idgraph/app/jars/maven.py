"""Jars out of Maven Central, fetched once for all processes of a user and checked by digest whenever they are used.

Fetched with the Ivy that is in PySpark, so nothing but Java is needed. What is run is pinned by a list of files and
their SHA-256 beside this module: a file that is missing, too many or another is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from idgraph.app.java import require_java
from idgraph.files import file_lock
from idgraph.model.errors import ConfigError

FETCH_SECONDS = 600


class Artifact(NamedTuple):
    """One module of Maven Central; `alone` without what it depends on."""

    group: str
    name: str
    version: str
    alone: bool = False


class JarSet(NamedTuple):
    """Modules that are used together. `name` is that of their folder, and of their list of digests."""

    name: str
    artifacts: tuple[Artifact, ...]


def cache_folder() -> Path:
    """Where fetched jars stay: in the user's cache, since all installations share them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idgraph" / "servers"


def jars(wanted: JarSet) -> Path:
    """The folder with the jars and native libraries of a set; fetches them when they are not there yet, which
    takes a minute or two.

    Raises ConfigError with the reason when they cannot be had, or are not those of the list.
    """
    digests = _digests(wanted)
    folder = cache_folder() / wanted.name
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{cache_folder()}: cannot be made: {error.strerror}") from None
    with file_lock(cache_folder() / f"{wanted.name}.lock"):
        if not folder.is_dir():
            _fetch(wanted, digests, folder)
        if (wrong := _wrong(folder, digests)) is not None:
            raise ConfigError(f"{folder}: {wrong}; remove the folder to fetch it again")
    return folder


def _digests(wanted: JarSet) -> dict[str, str]:
    listed = Path(__file__).with_name(f"{wanted.name}.sha256").read_text(encoding="ascii").split()
    return dict(zip(listed[1::2], listed[::2], strict=True))


def _module(wanted: JarSet) -> str:
    """What Ivy is to fetch, as it is reported."""
    dependencies = "".join(
        f'<dependency org="{each.group}" name="{each.name}" rev="{each.version}" '
        f'conf="default->{"master" if each.alone else "default"}"/>'
        for each in wanted.artifacts
    )
    info = f'<info organisation="idgraph" module="{wanted.name}"/>'
    return f'<ivy-module version="2.0">{info}<dependencies>{dependencies}</dependencies></ivy-module>'


def _fetch(wanted: JarSet, digests: dict[str, str], folder: Path) -> None:
    java = require_java()
    # Beside its place, so that it comes there by rename: whole or not at all.
    unfinished = f"fetching-{wanted.name}-"
    for left in folder.parent.glob(f"{unfinished}*"):
        # Of one that was killed: nobody else fetches this set now.
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=unfinished) as scratch:
        fetched = Path(scratch) / "jars"
        module = Path(scratch) / "ivy.xml"
        module.write_text(_module(wanted), encoding="utf-8")
        pattern = f"{fetched}/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, "-jar", str(_ivy()), "-cache", f"{scratch}/ivy", "-confs", "default"]
        command += ["-ivy", str(module), "-retrieve", pattern]
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(
                f"{wanted.name} could not be fetched from Maven Central within {FETCH_SECONDS} s"
            ) from None
        if done.returncode or not fetched.is_dir():
            said = [line.strip() for line in done.stdout.splitlines() if "WARN" in line or "ERROR" in line]
            why = (said or done.stderr.strip().splitlines() or ["Ivy gave no reason"])[0]
            raise ConfigError(f"{wanted.name} could not be fetched from Maven Central: {why}")
        for file in fetched.iterdir():
            if file.name not in digests:
                # Ivy may find a library for another system as well; none is needed that is not in the list.
                file.unlink()
        if (wrong := _wrong(fetched, digests)) is not None:
            raise ConfigError(f"what Maven Central gave is not {wanted.name}: {wrong}")
        shutil.move(fetched, folder)


def _wrong(folder: Path, digests: dict[str, str]) -> str | None:
    """What is not as the list says. Of a file too many, too: all that lies in the folder is run."""
    found = {file.name: file for file in folder.iterdir()}
    for name in sorted(found.keys() | digests.keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in digests:
            return f"{name} is not in the list"
        if hashlib.sha256(found[name].read_bytes()).hexdigest() != digests[name]:
            return f"{name} is not the file it should be"
    return None


def _ivy() -> Path:
    spec = find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise ConfigError("PySpark's jars hold no Ivy to fetch others with")
    return found[-1]
