"""Faults on real servers: after each, the flow's profiles are those of a run that nothing disturbed, byte for byte, all of
them can be found, and nothing was set aside. `pytest -m long tests/e2e/test_faults.py` plays them, `make test` does not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.faults import PATIENCE, Mortal, Scene, faults_between, killed_for_a_while, scene
from tests.installation import Installation
from tests.servers.faulty_proxy import (
    Fault,
    broken,
    busy,
    cut,
    delayed,
    half_an_answer,
    lost_answer,
    throttled,
)
from tests.servers.requirement import required

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

SERVERS = ("dynamodb", "elasticsearch", "kafka", "metadata")
DAY = 86_400


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with (
        required("boto3", "idgraph[dynamodb]"),
        required("elasticsearch", "idgraph[elasticsearch]"),
        scene(tmp_path_factory.mktemp("faults")) as made,
    ):
        yield made


def server(scene: Scene, name: str) -> Mortal:
    found: Mortal = getattr(scene, name)
    return found


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_killed_in_mid_batch(running: Scene, name: str) -> None:
    running.publish(killed_for_a_while(server(running, name)))
    running.settle()
    assert not running.store_faults, "it was killed"
    assert running.differences() == []


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_killed_while_idle(running: Scene, name: str) -> None:
    server(running, name).kill()
    server(running, name).restart()
    running.publish()
    running.settle()
    assert running.differences() == []


@pytest.mark.parametrize("fault", [half_an_answer, throttled, broken, cut, lost_answer, delayed])
def test_the_way_to_the_store(running: Scene, fault: Fault) -> None:
    running.store_faults.extend(faults_between(fault, 4))
    running.publish()
    running.settle()
    assert not running.store_faults
    assert running.differences() == []


@pytest.mark.parametrize("fault", [half_an_answer, busy, broken, cut, lost_answer, delayed])
def test_the_way_to_the_index(running: Scene, fault: Fault) -> None:
    running.index_faults.extend(faults_between(fault, 2))
    running.publish()
    running.settle()
    until_played(running)
    assert running.differences() == []


def until_played(running: Scene) -> None:
    """What is not asked for while the index is left alone, the next portions ask for."""
    for _ in range(5):
        if not running.index_faults:
            return
        running.publish()
        running.settle()
    assert not running.index_faults


def test_the_clock_is_set_back_and_forth(running: Scene) -> None:
    for seconds in (-3600, -2 * DAY, 0):
        running.clock.write_text(str(seconds))
        running.publish()
        running.settle()
        assert running.differences() == []


def test_two_flows_with_one_checkpoint(running: Scene) -> None:
    running.stop()
    # In one folder the second is refused; two machines may have copies of it.
    second = Installation(running.folder / "second", running.shop, topics="faults-", **running.tables)
    shutil.copytree(running.folder / "flow" / ".idgraph", running.folder / "second" / ".idgraph")
    both_take_a_portion(running, second)


def test_two_flows_in_one_group(running: Scene) -> None:
    """Every flow's consumers name the same group, and none has a share of the records for it: each takes all."""
    running.stop()
    second = Installation(
        running.folder / "third", running.shop, topics="faults-", name="third", **running.tables
    )
    both_take_a_portion(running, second)
    taken = sum(batch["events"] for batch in second.batches())
    assert taken == running.published


def both_take_a_portion(running: Scene, second: Installation) -> None:
    """At once, into one store and one index."""
    running.publish()
    processes = [each.start("--until-done") for each in (running.installation, second)]
    assert [process.wait(PATIENCE) for process in processes] == [0, 0]
    assert all(each.batches()[-1]["events"] for each in (running.installation, second))
    running.start()
    running.settle()
    assert running.differences() == []


def test_the_driver_killed_in_mid_batch(running: Scene) -> None:
    running.publish(running.process.kill)
    running.process.wait(PATIENCE)
    running.settle()
    assert not running.store_faults, "it was killed"
    assert running.differences() == []
