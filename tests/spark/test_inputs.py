"""What every kind of input keeps: each record is taken once, in whatever run, under a position that stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.installation import Installation, Shop, retail
from tests.servers.kafka import running_kafka
from tests.servers.pulsar import running_pulsar
from tests.spark.conftest import FIRST

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


class Input(NamedTuple):
    """An installation, and how lines come to one of its sources."""

    installation: Installation
    publish: Callable[[str, Sequence[bytes]], object]


@pytest.fixture(params=["files", "kafka", "pulsar"])
def given(request: pytest.FixtureRequest, tmp_path: Path, shop: Shop) -> Iterator[Input]:
    with ExitStack() as stack:
        if request.param == "files":
            installation = Installation(tmp_path, shop)
            yield Input(installation, installation.publish)
        elif request.param == "kafka":
            broker = stack.enter_context(running_kafka(tmp_path / "kafka"))
            broker.create(*FIRST)
            settings = {"bootstrap_servers": broker.bootstrap_servers}
            installation = Installation(tmp_path, shop, kafka=settings, topics="")
            yield Input(installation, lambda source, lines: broker.produce(source, *lines))
        else:
            server = stack.enter_context(running_pulsar(tmp_path / "pulsar"))
            server.create(*FIRST)
            installation = Installation(tmp_path, shop, pulsar=server.settings, topics="")
            yield Input(installation, server.publish)


def test_each_record_is_taken_once(given: Input, first_profiles: bytes) -> None:
    installation, publish = given
    lines = {source: [line.rstrip() for line in retail(source)[:events]] for source, events in FIRST.items()}
    for source, some in lines.items():
        publish(source, some[:-10])
    publish("orders", [b'{"order_id": '])
    assert sum(batch["events"] for batch in installation.run()) == sum(FIRST.values()) - 30 + 1
    assert installation.run() == [], "all is done"
    (broken,) = installation.dead_letters()
    for source, some in lines.items():
        publish(source, some[-10:])
    assert sum(batch["events"] for batch in installation.run()) == 30
    assert installation.profiles() == first_profiles
    installation.command("dead-letters", "replay", "--all", code=1)
    assert [each["position"] for each in installation.dead_letters()] == [broken["position"]]
