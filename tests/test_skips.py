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
    *_, why, total = done.stdout.splitlines()
    tests = (ROOT / "tests/spark/test_stopping.py").read_text().count("\ndef test_")
    assert tests > 1
    assert why.startswith(f"SKIPPED [{tests}] tests/spark/test_stopping.py: JAVA_HOME is /nowhere")
    assert f"{tests} skipped" in total
