"""Python imports this at its start from a folder on its path: processes of the flow then die at points of the code,
named in the environment. The code itself knows nothing of it.

IDGRAPH_TEST_DEATHS is a JSON array of objects, of which each is one death: `module`, `owner` (a class, or empty), `name`, `when` (before or after), `call` (which one in
this process), `role` (driver, worker or projection), `marker` (a file that the one that dies makes), and `waits`: to be killed with
all others instead.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import wraps
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_reported = os.environ.get("IDGRAPH_TEST_DEATHS")


class _Finder:
    """Finds the modules, as they are, and has them patched when they were executed."""

    def __init__(self, deaths: list[dict[str, Any]]) -> None:
        self._deaths = deaths

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        deaths = [death for death in self._deaths if death["module"] == name]
        if not deaths:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None:
            loader: Any = found.loader
            whole = loader.exec_module

            def execute(module: ModuleType) -> None:
                whole(module)
                for death in deaths:
                    _patch(module, death)

            loader.exec_module = execute
        return found


def _patch(module: ModuleType, death: dict[str, Any]) -> None:
    owner = getattr(module, death["owner"]) if death["owner"] else module
    whole = getattr(owner, death["name"])
    calls = 0

    @wraps(whole)
    def patched(*given: Any, **named: Any) -> Any:
        nonlocal calls
        if _role() != death["role"]:
            return whole(*given, **named)
        calls += 1
        if death["when"] == "before" and calls == death["call"]:
            _die(death)
        result = whole(*given, **named)
        if death["when"] == "after" and calls == death["call"]:
            _die(death)
        return result

    setattr(owner, death["name"], patched)


def _role() -> str:
    if "idgraph.app.projecting" in sys.orig_argv:
        return "projection"
    return "worker" if "pyspark.worker" in sys.modules else "driver"


def _die(death: dict[str, Any]) -> None:
    try:
        os.close(os.open(death["marker"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    while death["waits"]:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


if _reported:
    finder: Any = _Finder(json.loads(_reported))
    sys.meta_path.insert(0, finder)
