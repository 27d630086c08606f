"""No spec and no payload can stall or exhaust a worker: each attack ends as an error that names the place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model import native
from tests.transforms.hostile import ATTACKS
from tests.transforms.hostile_functions import VALUES

ROOT = Path(__file__).parents[2]


def run(module: str, argument: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, argument],
        cwd=ROOT,
        env=os.environ | ({} if native.programs else {native.VARIABLE: "off"}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str) -> None:
    done = run("tests.transforms.hostile", name)
    assert done.returncode == 0, f"out of time or memory: {done.returncode} {done.stderr[-500:]}"
    answer = json.loads(done.stdout)
    wanted = ATTACKS[name]
    error = wanted.error.__name__ if wanted.error else None
    assert (answer["error"], answer["pointer"]) == (error, wanted.pointer), answer
    assert "unexpected" not in answer["message"], answer


@pytest.mark.parametrize("value", VALUES)
def test_every_operation_and_function(value: str) -> None:
    done = run("tests.transforms.hostile_functions", value)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-500:]
