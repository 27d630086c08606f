"""The flow with records that arrive encrypted, by a service that is slow and fails: the same profiles as in the clear."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.canaries import files_below, leaks
from tests.installation import Installation, Shop, retail
from tests.servers.decryption_service import Fault, cut, decryption_service, encrypted, half, status
from tests.spark.conftest import FIRST

pytestmark = [pytest.mark.spark, pytest.mark.long]

FAULTS: list[Fault] = [status(503), status(429), cut, half]
CANARY = "Kahuna-Wilhelmina"


def arriving(source: str) -> list[bytes]:
    return [encrypted(line.rstrip(b"\n")) for line in retail(source)[: FIRST[source]]]


def test_a_service_that_is_slow_and_fails_changes_nothing(
    tmp_path: Path, shop: Shop, first_profiles: bytes
) -> None:
    chosen = random.Random(7)
    with decryption_service() as (url, service):
        service.seconds = lambda _: chosen.choice((0.0, 0.001, 0.02))
        service.often = lambda: chosen.choice([*FAULTS, *(None,) * 16])
        decryptor = {"url": url, "retries": 6, "timeout_seconds": 30.0}
        installation = Installation(tmp_path, shop, decryptor=decryptor)
        for source in FIRST:
            installation.publish(source, arriving(source))
        installation.publish("orders", [encrypted(b'{"order_id": "' + CANARY.encode())])
        batches = installation.run()
        everything = sum(FIRST.values()) + 1
        assert sum(each["decrypted"] for each in batches) == everything
        assert sum(each["decrypt_retries"] for each in batches) > 100
        assert installation.profiles() == first_profiles
        (dead_letter,) = installation.dead_letters()
        assert dead_letter["reason"] == "not_json"
        service.often = lambda: None
        asked = len(service.positions)
        installation.command("dead-letters", "replay", "--all", code=1)
        assert len(service.positions) == asked + 1, "a dead letter holds what arrived"
    assert_nothing_is_in_the_clear(installation)


def assert_nothing_is_in_the_clear(installation: Installation) -> None:
    """What arrived encrypted is in no file but as policy stores it."""
    orders = [json.loads(line) for line in retail("orders")[: FIRST["orders"]]]
    canaries = [CANARY, *sorted({order["customer"]["email"] for order in orders})[::20]]
    files = [*files_below(installation.folder)]
    assert len(files) > 10
    assert leaks(canaries, files) == []
