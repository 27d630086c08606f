"""Finding the Java runtime that Spark needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
    """Where the archives of Spark's classes are: in the user's cache, since all installations share them."""
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
