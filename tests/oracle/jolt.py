"""Runs the Java Jolt library, to compare with: `answers([{"spec": ..., "input": ..., "context": ...}, ...])`.

Its jars come from Maven Central the first time and stay in the user's cache folder.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

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


class Jolt:
    """The library in a process of its own, which is started again when a task makes it hang."""

    def __init__(self, patience: float = 30) -> None:
        """`patience` is how many seconds one answer may take. Raises NoOracleError."""
        self._classpath = classpath()
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def answer(self, task: dict[str, Any]) -> dict[str, Any]:
        """`{"output": ...}`, or `{"error": "spec" | "transform" | "hangs", "detail": ...}`."""
        process = self._process or self._start()
        if process.stdin is None or process.stdout is None:
            raise NoOracleError("java has no pipes")
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self._patience)
        line = process.stdout.readline() if ready else b""
        if not line:
            self._stop()
            return {"error": "hangs", "detail": "no answer"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx512m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                self._classpath,
                "JoltOracle",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def answers(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answer to each task. Raises NoOracleError."""
    with Jolt() as jolt:
        return [jolt.answer(task) for task in tasks]
