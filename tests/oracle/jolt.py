"""Runs the Java Jolt library, to compare with: `answers([{"spec": ..., "input": ..., "context": ...}, ...])`.

Its jars come from Maven Central the first time and stay in the user's cache folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

VERSION = "0.1.8"
SOURCE = Path(__file__).with_name("JoltOracle.java")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>oracle</groupId><artifactId>oracle</artifactId><version>1</version>
<dependencies>
<dependency><groupId>com.bazaarvoice.jolt</groupId><artifactId>jolt-core</artifactId><version>{0}</version></dependency>
<dependency><groupId>com.bazaarvoice.jolt</groupId><artifactId>json-utils</artifactId><version>{0}</version></dependency>
</dependencies></project>"""


class NoOracleError(Exception):
    """Java, Maven or the jars are not to be had; the message says which."""


def classpath() -> str:
    """Where the jars and the compiled oracle are; fetches and compiles them if need be."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise NoOracleError(f"{tool} is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "idgraph" / f"jolt-{VERSION}"
    jars, classes = cache / "jars", cache / "classes"
    if not list(jars.glob("jolt-core-*.jar")):
        _fetch(cache, jars)
    compiled = classes / "JoltOracle.class"
    if not compiled.exists() or compiled.stat().st_mtime < SOURCE.stat().st_mtime:
        _run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE)], cache)
    return f"{jars}/*{os.pathsep}{classes}"


def _fetch(cache: Path, jars: Path) -> None:
    if shutil.which("mvn") is None:
        raise NoOracleError("Maven is not installed and the Jolt jars are not in the cache")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "pom.xml").write_text(_POM.format(VERSION))
    _run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], cache)


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=240)
    except (subprocess.SubprocessError, OSError) as error:
        raise NoOracleError(f"{command[0]} failed: {type(error).__name__}") from error


def answers(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each task `{"output": ...}`, or `{"error": "spec" | "transform", "detail": ...}`."""
    lines = "\n".join(json.dumps(task) for task in tasks)
    done = subprocess.run(
        ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath(), "JoltOracle"],
        input=lines.encode(),
        capture_output=True,
        check=True,
        timeout=240,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
