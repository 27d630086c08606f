"""The alert rules on series of our own, as Prometheus plays them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt install prometheus")
def test_each_flow_that_is_gone_a_pause_and_a_source_that_waits_are_alerts() -> None:
    tests = Path(__file__).with_name("alerts.yml")
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(tests)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
