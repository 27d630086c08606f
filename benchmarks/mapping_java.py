"""The Java Jolt library as a process that maps payloads on command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mapping_cases import MappingCase
from tests.oracle import jolt

SOURCE = Path(__file__).with_name("JoltRounds.java")


class JavaJolt:
    """One JVM for some cases: its compiler specialises on what they have in common. A context manager.

    Raises NoOracleError without Java, Maven or the jars.
    """

    def __init__(self, cases: Sequence[MappingCase], folder: Path) -> None:
        files: list[str] = []
        for number, case in enumerate(cases):
            spec, payloads = folder / f"spec-{number}.json", folder / f"payloads-{number}.jsonl"
            spec.write_bytes(case.java_spec)
            payloads.write_bytes(b"".join(line + b"\n" for line in case.lines))
            files += [str(spec), str(payloads)]
        classes = f"{jolt.classpath()}{os.pathsep}{folder}"
        subprocess.run(["javac", "-cp", classes, "-d", str(folder), str(SOURCE)], check=True)
        command = ["java", "-XX:+UseSerialGC", "-Xms512m", "-Xmx512m", "-cp", classes, "JoltRounds"]
        self._process = subprocess.Popen(
            [*command, *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> JavaJolt:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def seconds(self, mode: str, number: int, repeats: int) -> float:
        """CPU seconds of so many passes over all payloads of a case; `mode` is `map` or `json`."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process has no pipes")
        process.stdin.write(f"{mode} {number} {repeats}\n")
        process.stdin.flush()
        return int(process.stdout.readline()) / 1e9
