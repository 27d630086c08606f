"""Asking before something is done for good."""

from __future__ import annotations

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
