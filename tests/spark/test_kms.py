"""The flow with its keys in AWS KMS, which goes away while it runs: the same profiles as with a keyring of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.canaries import files_below, leaks
from tests.installation import Installation, Shop, kill_tree, retail, until
from tests.servers.kms import REGION, Kms, running_kms
from tests.spark.conftest import FIRST, publish_first

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def kms() -> Iterator[Kms]:
    kms = running_kms()
    yield kms
    if not kms.is_there():
        kms.start()


def in_kms(folder: Path, shop: Shop, kms: Kms, **flow: Any) -> Installation:
    """An installation whose keyring holds the keys of the others' encrypted by KMS, and which keeps none in memory for
    long."""
    keys = {"kind": "kms", "kms_key": kms.new_key().key, "region": REGION, "endpoint": kms.url}
    limits = {"cache_seconds": 0.05, "retry_seconds": 0.2}
    own = replace(shop, keyring=folder / "keyring.json")
    installation = Installation(folder, own, keys={**keys, **limits}, **flow)
    installation.command("keys", "init", "--from", str(shop.keyring))
    return installation


def protected() -> list[str]:
    """Some of what is sealed of the first events."""
    orders = [json.loads(line) for line in retail("orders")[: FIRST["orders"]]]
    return sorted({order["customer"]["email"] for order in orders})[::20]


def publish_one(installation: Installation) -> None:
    """One event that is published once more with the others, which changes nothing."""
    installation.publish("orders", retail("orders")[:1])


def running_until_kms_is_away(installation: Installation, kms: Kms, ended: Callable[[], Any]) -> int | None:
    """Run the flow while KMS goes away, until it ends or the condition holds; gives its exit code."""
    publish_one(installation)
    process = installation.start()
    try:
        until(lambda: installation.batches() or process.poll() is not None, what="the first micro-batch")
        kms.kill()
        publish_first(installation)
        until(lambda: process.poll() is not None or ended(), what="the end")
        return process.poll()
    finally:
        if process.poll() is None:
            kill_tree(process)


def test_a_flow_stops_while_kms_is_away_and_goes_on_later(
    tmp_path: Path, shop: Shop, kms: Kms, first_profiles: bytes
) -> None:
    installation = in_kms(tmp_path, shop, kms, batch_retries=1)
    assert running_until_kms_is_away(installation, kms, lambda: False) == 1
    reported = (tmp_path / "flow.err").read_bytes().splitlines()
    of_the_key = [line for line in reported if b":key/" in line]
    assert of_the_key[0].split()[1] == b"WARNING", "it was retried"
    assert of_the_key[-1].startswith(b"error:")
    assert b":key/" in reported[-1]
    assert_nothing_is_in_the_clear(installation, shop)
    kms.start()
    installation.run()
    assert installation.profiles() == first_profiles
    assert installation.dead_letters() == []
    assert_nothing_is_in_the_clear(installation, shop)


def test_a_flow_sets_aside_what_it_cannot_seal_and_a_replay_brings_it(
    tmp_path: Path, shop: Shop, kms: Kms, first_profiles: bytes
) -> None:
    installation = in_kms(
        tmp_path, shop, kms, on_key_service_failure="dead_letter", dead_letters={"max_rate": 1.0}
    )
    published = 1 + sum(FIRST.values())

    def is_all_done() -> bool:
        return bool(sum(batch["events"] for batch in installation.batches()) == published)

    assert running_until_kms_is_away(installation, kms, is_all_done) is None
    kms.start()
    dead_letters = installation.dead_letters()
    assert {dead_letter["reason"] for dead_letter in dead_letters} == {"key_unavailable"}
    assert_nothing_is_in_the_clear(installation, shop)
    installation.command("dead-letters", "replay", "--all")
    installation.run()
    assert installation.profiles() == first_profiles
    assert installation.dead_letters() == []


def assert_nothing_is_in_the_clear(installation: Installation, shop: Shop) -> None:
    """Neither what is protected nor a key, in whatever was written but for what came in."""
    secrets = json.loads(shop.keyring.read_bytes())
    bare = [secrets["root"], *(key["key"] for key in secrets["keys"])]
    files = [*files_below(installation.folder, without=frozenset({"inbox"}))]
    assert len(files) > 10
    assert leaks([*protected(), *bare], files) == []
