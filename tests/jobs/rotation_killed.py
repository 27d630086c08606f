"""A rotation of keys that is killed at one of its steps, before or behind what writes: `forks.py` runs it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from idgraph.jobs.rotate import Rotation, retire
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.database import SqliteFile
from tests.support.steps import ended


def main() -> None:
    """What it was called with is the folder of the keys, and which step is the last."""
    name, left = json.loads(sys.argv[1])

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            step()
            result = function(*arguments)
            step()
            return result

        return run

    for owner, function in ((os, "fsync"), (Path, "replace"), (SqliteFile, "write")):
        setattr(owner, function, watched(getattr(owner, function)))
    folder = Path(name)
    provider, store = KeyringFile(folder / "keyring.json"), SqliteDataKeys(folder / "data-keys.db")
    ended(Rotation(provider, store, 7))
    retire(provider, store, 1)
    print("done")
