"""The Java runtime that Spark needs, and jars from Maven Central.

Ivy, which PySpark contains, fetches the jars, once for all processes of a user. A list of files and their SHA-256
beside this module pins them, at each use: a missing, additional or different file is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from idgraph.files import file_lock
from idgraph.model.errors import ConfigError

MINIMUM = 17
VERSION_SECONDS = 60.0


def require_java() -> str:
    """The program to run. Raises ConfigError with the command that installs a Java runtime when there is none to be found."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ConfigError(
            f"Spark needs Java {MINIMUM} or newer and none was found. Install it with:\n  {_install()}"
        )
    try:
        answer = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, check=False, timeout=VERSION_SECONDS
        )
    except OSError:
        raise ConfigError(
            f"JAVA_HOME is {home}, where there is no bin/java; correct it, or:\n  {_install()}"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{java} -version gave no answer within {VERSION_SECONDS:g} s") from None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None:
        said = " / ".join(answer.stderr.split("\n")[:5]).strip(" /") or "nothing"
        raise ConfigError(
            f"{java} -version gave no version (exit code {answer.returncode}; it said: {said}). If it is no "
            f"Java, install {MINIMUM} or newer with:\n  {_install()}"
        )
    if int(found[1]) < MINIMUM:
        raise ConfigError(
            f"{java} is Java {found[1]}; Spark needs {MINIMUM} or newer. Install it with:\n  {_install()}"
        )
    return java


def class_archives() -> Path:
    """The folder of the archives of Spark's classes: in the user's cache, since all installations share
    them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idgraph" / "java"


def _install() -> str:
    if sys.platform == "darwin":
        return f"brew install openjdk@{MINIMUM}"
    for program, command in (
        ("apt-get", f"sudo apt-get install -y openjdk-{MINIMUM}-jre-headless"),
        ("dnf", f"sudo dnf install -y java-{MINIMUM}-openjdk-headless"),
        ("apk", f"sudo apk add openjdk{MINIMUM}-jre-headless"),
        ("pacman", f"sudo pacman -S jre{MINIMUM}-openjdk-headless"),
    ):
        if shutil.which(program):
            return command
    return f"(your system's package manager) OpenJDK {MINIMUM}"


FETCH_SECONDS = 600


class Artifact(NamedTuple):
    """One module of Maven Central; `alone` without its dependencies."""

    group: str
    name: str
    version: str
    alone: bool = False


class JarSet(NamedTuple):
    """Modules that are used together. `name` is that of their folder, and of the list `NAME.sha256` in `lists`."""

    name: str
    artifacts: tuple[Artifact, ...]
    lists: Path = Path(__file__).parent


def cache_folder() -> Path:
    """The folder of fetched jars: in the user's cache, since all installations share them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idgraph" / "servers"


def jars(wanted: JarSet) -> Path:
    """The folder with the jars and native libraries of a set; fetches them when they are not there yet, which
    takes a minute or two.

    Raises ConfigError with the reason when they cannot be had, or are not those of the list.
    """
    digests = _digests(wanted)
    folder = cache_folder() / wanted.name
    # Whole or not at all, so it is read without the lock: an image has it on a file system that takes none.
    if not folder.is_dir():
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
    listed = (wanted.lists / f"{wanted.name}.sha256").read_text(encoding="ascii").split()
    return dict(zip(listed[1::2], listed[::2], strict=True))


def _module(wanted: JarSet) -> str:
    """The list of files for Ivy."""
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
    for leftover in folder.parent.glob(f"{unfinished}*"):
        # A killed process left it: nobody else fetches this set now.
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=unfinished) as scratch:
        fetched = Path(scratch) / "jars"
        module = Path(scratch) / "ivy.xml"
        module.write_text(_module(wanted), encoding="utf-8")
        pattern = f"{fetched}/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, "-jar", str(_ivy()), "-cache", f"{scratch}/ivy", "-confs", "default"]
        command += ["-ivy", str(module), "-retrieve", pattern]
        try:
            process = subprocess.run(  # noqa: S603 - our own words
                command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(
                f"{wanted.name} could not be fetched from Maven Central within {FETCH_SECONDS} s"
            ) from None
        if process.returncode or not fetched.is_dir():
            messages = [
                line.strip() for line in process.stdout.splitlines() if "WARN" in line or "ERROR" in line
            ]
            why = (messages or process.stderr.strip().splitlines() or ["Ivy gave no reason"])[0]
            raise ConfigError(f"{wanted.name} could not be fetched from Maven Central: {why}")
        for file in fetched.iterdir():
            if file.name not in digests:
                # Ivy may find a library for another system as well; none is needed that is not in the list.
                file.unlink()
        if (wrong := _wrong(fetched, digests)) is not None:
            raise ConfigError(f"the file from Maven Central is not {wanted.name}: {wrong}")
        shutil.move(fetched, folder)


def _wrong(folder: Path, digests: dict[str, str]) -> str | None:
    """Differences from the list, surplus files included: all that lies in the folder is run."""
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
