"""Other processes for the contract suites: real ones, so that locks and crashes are real."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(program: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """A Python process that runs `program`; its arguments are in `sys.argv[1:]`."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """What the process printed. Fails with its errors when it failed."""
    assert process.stdout is not None
    assert process.stderr is not None
    # Not `communicate`, which reads past these streams and loses what `readline` took into their buffers.
    output, errors = process.stdout.read(), process.stderr.read()
    assert process.wait(timeout=120) == 0, errors
    process.communicate()
    return output


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Kill (-9) a process; gives the lines that it had printed and nobody read."""
    assert process.stdout is not None
    process.kill()
    # Not `communicate`, which reads past this stream, and misses lines that it took in with an earlier one.
    rest = process.stdout.readlines()
    process.communicate()
    return rest


@contextmanager
def killed_after(program: str, *arguments: str | Path, lines: int, pause: float) -> Iterator[list[str]]:
    """Kill (-9) the process a moment after it printed so many lines; gives all that it printed."""
    process = start(program, *arguments)
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(lines)]
    assert all(printed), process.communicate()[1]
    time.sleep(pause)
    yield [line.strip() for line in [*printed, *kill(process)]]
