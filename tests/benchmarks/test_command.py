"""`make bench` installs what the product needs, and no extras."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


ROOT = Path(__file__).parents[2]
MODULES = {
    "confluent-kafka": "confluent_kafka",
    "protobuf": "google.protobuf",
}

_WITHOUT = """
import sys
for name in sys.argv.pop(1).split():
    sys.modules[name] = None
from benchmarks.__main__ import main
main()
"""


def test_it_starts_without_extras() -> None:
    """Found in a fresh clone: the benchmark of a cluster wanted Kafka's client of whoever measured something else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = {
        text.partition("[")[0].partition(">")[0].partition("=")[0]
        for some in project["optional-dependencies"].values()
        for text in some
    }
    missing = " ".join(sorted(MODULES.get(each, each) for each in packages))
    assert "confluent_kafka" in missing
    command = [sys.executable, "-c", _WITHOUT, missing, "--help"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "throughput" in done.stdout
