"""The flow on DynamoDB: the same profiles as on the embedded store, byte for byte, and by its stream the same index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import load
from idgraph.model.queries import Query
from idgraph.projection.documents import documents_of
from tests.installation import Installation, Shop
from tests.retail import persons_of
from tests.servers.dynamodb import require_dynamodb
from tests.spark.conftest import FIRST, publish_first
from transforms.schema.diff import AttributeTree

# A flow into DynamoDB is played by tests/e2e/test_production.py and test_cluster.py too.
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


def test_the_first_thousand_events_give_the_same_export(
    tmp_path: Path, shop: Shop, first_thousand: Installation, first_profiles: bytes
) -> None:
    store = {
        "kind": "dynamodb",
        "table_prefix": "flow-" + tmp_path.name,
        "region": "eu-central-1",
        "endpoint": require_dynamodb(),
    }
    dynamodb = Installation(tmp_path / "dynamodb", shop, store=store, index={"fed_by": "streams"})
    created = dynamodb.command("store", "create").stdout.decode().split()
    assert f"flow-{tmp_path.name}-fragments" in created
    assert b"all tables exist" in dynamodb.command("store", "create").stdout
    publish_first(dynamodb)
    assert sum(batch["events"] for batch in dynamodb.run()) == sum(FIRST.values())
    assert dynamodb.profiles() == first_profiles
    assert not list((tmp_path / "dynamodb" / ".idgraph").glob("profiles.db*"))
    same_index_by_the_stream(dynamodb, first_thousand)
    fragment_id = json.loads(first_profiles.splitlines()[0])["id"]
    assert dynamodb.command("lookup", fragment_id).stdout
    dynamodb.command("erase", "--fragment", fragment_id, "--yes")
    dynamodb.command("lookup", fragment_id, code=3)


def same_index_by_the_stream(streamed: Installation, by_flow: Installation) -> None:
    """What the flow left alone is indexed as the other's flow has indexed it."""
    assert not streamed.command("search", "--json").stdout
    streamed.command("index", "follow", "--until-done")
    streamed.command("reconcile")
    settings = load(by_flow.config)
    rules = AttributeTree(metadata_access.snapshot_to_read_by(settings).snapshot).index_rules
    with wiring.opened(settings) as theirs, wiring.opened(load(streamed.config)) as ours:
        documents = documents_of(persons_of(theirs.store), rules).documents
        assert ours.index.count(Query()) == theirs.index.count(Query()) == len(documents)
        for index in (ours.index, theirs.index):
            assert all(each.is_same for each in index.compare(documents).values())
