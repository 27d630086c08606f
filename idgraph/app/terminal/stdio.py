"""Standard input, output and error that whoever started the process has closed (`>&-`)."""

from __future__ import annotations

import os
import sys


def confirmed(prompt: str) -> bool:
    """Ask on standard error; anything but yes, and no answer at all, is no. Raises KeyboardInterrupt, which
    typer's own prompt would turn into a refusal (and into another exit code)."""
    print(f"{prompt} [y/N]: ", end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise


_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""By name, in the order of their descriptors."""


def open_closed_streams() -> None:
    """What is closed becomes /dev/null, before another file gets its descriptor: messages would go to standard output, or
    into a database."""
    for number, (name, mode) in enumerate(_MODES.items()):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        # Spark's processes have them too.
        os.set_inheritable(number, True)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays open
