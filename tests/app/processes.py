"""The command line in a process of its own, as a shell starts it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.app.conftest import CommandLine

ROOT = Path(__file__).parents[2]


def program(idgraph: CommandLine, *words: str) -> list[str]:
    return [sys.executable, "-m", "idgraph.app.cli", "-c", f"{idgraph.folder}/idgraph.toml", *words]


def on_a_terminal(command: list[str]) -> tuple[bytes, str]:
    """What a command shows on a terminal as its standard error, and its standard output, once it has ended."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=ROOT, stderr=theirs, stdout=subprocess.PIPE, text=True)
    os.close(theirs)
    screen = b""
    while True:
        try:
            screen += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    return screen, process.communicate(timeout=60)[0]
