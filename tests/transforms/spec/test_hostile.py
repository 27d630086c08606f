"""No spec and no payload can stall or exhaust a worker: each attack ends as an error that names the place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.forks import Ended, Forks
from tests.transforms.spec import hostile, hostile_functions
from tests.transforms.spec.hostile import ATTACKS
from tests.transforms.spec.hostile_functions import VALUES

pytestmark = pytest.mark.long


Run = Callable[[str, str], Ended]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    forks = Forks(hostile.__name__, hostile_functions.__name__)

    def run(module: str, argument: str) -> Ended:
        nonlocal forks
        if forks.ended:
            forks = Forks(hostile.__name__, hostile_functions.__name__)
        return forks.run(module, argument)

    yield run
    forks.end()


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(run: Run, name: str) -> None:
    done = run(hostile.__name__, name)
    assert done.code == 0, f"out of time or memory: {done.code} {done.errors[-500:]}"
    answer = json.loads(done.output)
    wanted = ATTACKS[name]
    error = wanted.error.__name__ if wanted.error else None
    assert (answer["error"], answer["pointer"]) == (error, wanted.pointer), answer
    assert "unexpected" not in answer["message"], answer


@pytest.mark.parametrize("value", VALUES)
def test_every_operation_and_function(run: Run, value: str) -> None:
    done = run(hostile_functions.__name__, value)
    assert (done.code, done.output) == (0, ""), done.errors[-500:]
