"""The flow on Elasticsearch: the same answers as the embedded index gives for the same profiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import load
from idgraph.model.index import ProfileIndex
from idgraph.model.queries import Query
from idgraph.projection.documents import documents_of
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from sinks.tantivy.index import TantivyProfileIndex
from tests.contracts.implementations import reversed_name
from tests.installation import Installation, Shop, retail
from tests.properties.test_indexes import all_pages
from tests.retail_queries import QUERIES
from tests.servers.elasticsearch import in_files, place_of_index, require_elasticsearch
from transforms.schema.diff import AttributeTree

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

FIRST = {"segment": 250, "amplitude": 150, "orders": 100}


@contextmanager
def opened(installation: Installation) -> Iterator[tuple[ProfileIndex, ProfileIndex]]:
    """The index of an installation, and an embedded one of the same profiles."""
    settings = load(installation.config)
    rules = AttributeTree(metadata_access.snapshot_to_read_by(settings).snapshot).index_rules
    embedded = TantivyProfileIndex(installation.folder / "embedded", reversed_name)
    with wiring.opened(settings) as resources:
        persons = Persons(resources.store, Rules(rules.identity))
        for page in persons.scan(resolves_all=False):
            embedded.put(documents_of(page.persons, rules).documents)
        yield resources.index, embedded
    embedded.close()


def test_a_flow_fills_it_and_it_answers_as_the_embedded_index(tmp_path: Path, shop: Shop) -> None:
    url, name = require_elasticsearch(), place_of_index(tmp_path).name + "-flow"
    index = {"kind": "elasticsearch", "url": url, "name": name, "replicas": 0}
    installation = Installation(tmp_path / "shop", shop, index=index)
    assert installation.command("index", "create").stdout == f"created {name}-000001\n".encode()
    assert installation.command("index", "create").stdout == b"the index exists\n"
    for source, events in FIRST.items():
        installation.publish(source, retail(source)[:events])
    batches = installation.run()
    assert sum(batch["events"] for batch in batches) == sum(FIRST.values())
    assert not list((installation.folder / ".idgraph").glob("index.db*"))
    with wiring.opened(load(installation.config)) as resources:
        resources.store.enqueue(list(resources.store.ids()))
    with opened(installation) as (elasticsearch, embedded):
        everybody = all_pages(embedded, Query(), 100)
        found = [all_pages(embedded, query, 100) for query in QUERIES]
        assert [all_pages(elasticsearch, query, 100) for query in QUERIES] == found
        assert [elasticsearch.count(query) for query in QUERIES] == [len(each) for each in found]
        # In tasks, as the flow did.
        installation.command("resolve", "--rebuild", "--rules-restored")
        with wiring.opened(load(installation.config)) as resources:
            assert resources.store.outbox() == []
        assert [all_pages(elasticsearch, query, 100) for query in QUERIES] == found
    assert sum(bool(each) for each in found) >= 6, "the queries ask for what is there"
    profiles = [json.loads(line) for line in installation.export("--reveal").splitlines()]
    emails = [each["attributes"].get("identity", {}).get("email") for each in profiles]
    assert any(emails)
    assert not any(in_files(email.encode()) for email in list(filter(None, emails))[:10])
    installation.command("erase", "--fragment", everybody[0], "--yes")
    page = json.loads(installation.command("search", "--json", "--limit", "1").stdout)
    assert page["id"] == everybody[1]
