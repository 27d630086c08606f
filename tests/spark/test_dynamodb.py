"""The flow on DynamoDB: the same profiles as on the embedded store, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, retail
from tests.servers.dynamodb import require_dynamodb

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST = {"segment": 500, "amplitude": 300, "orders": 200}


def publish(installation: Installation) -> None:
    for source, events in FIRST.items():
        installation.publish(source, retail(source)[:events])


def test_the_first_thousand_events_give_the_same_export(tmp_path: Path, shop: Shop) -> None:
    store = {
        "kind": "dynamodb",
        "table_prefix": "flow-" + tmp_path.name,
        "region": "eu-central-1",
        "endpoint": require_dynamodb(),
    }
    embedded = Installation(tmp_path / "embedded", shop)
    dynamodb = Installation(tmp_path / "dynamodb", shop, store=store)
    created = dynamodb.command("store", "create").stdout.decode().split()
    assert f"flow-{tmp_path.name}-fragments" in created
    assert b"all tables are there" in dynamodb.command("store", "create").stdout
    for installation in (embedded, dynamodb):
        publish(installation)
        batches = installation.run()
        assert sum(batch["events"] for batch in batches) == sum(FIRST.values())
    assert dynamodb.profiles() == embedded.profiles()
    assert not list((tmp_path / "dynamodb" / ".idgraph").glob("profiles.db*"))
    fragment_id = json.loads(embedded.export().splitlines()[0])["id"]
    assert dynamodb.command("lookup", fragment_id).stdout
    dynamodb.command("erase", "--fragment", fragment_id, "--yes")
    dynamodb.command("lookup", fragment_id, code=3)
