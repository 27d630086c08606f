"""A run that left tests out says how many and why, in its last lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_without_java_the_last_lines_say_what_was_not_tested() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/spark/test_stopping.py"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    *_, total = lines = done.stdout.splitlines()
    reasons = [line for line in lines if line.startswith("SKIPPED [")]
    # A parametrized function is more than one test, and pytest tells of it in a line of its own
    told = sum(int(line.removeprefix("SKIPPED [").partition("]")[0]) for line in reasons)
    functions = (ROOT / "tests/spark/test_stopping.py").read_text().count("\ndef test_")
    assert 1 < functions <= told
    assert all("tests/spark/test_stopping.py" in why and ": JAVA_HOME is /nowhere" in why for why in reasons)
    assert lines[-1 - len(reasons) : -1] == reasons
    assert total.strip("= ").startswith(f"{told} skipped in ")
