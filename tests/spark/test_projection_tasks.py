"""The projection in real tasks of Spark: the index is as by a sweep in one process, under one version of the rules and the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import Settings, load
from idgraph.files import write_atomically
from idgraph.model.identity_events import IdentityEvent
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.index import IndexRules
from idgraph.model.queries import Query
from idgraph.projection.documents import documents_of
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from sinks.keyring.provider import KeyringFile
from tests.installation import Installation, Shop
from tests.merge.identity.test_persons import Installation as Scenario
from tests.retail import snapshot
from tests.spark.own_session import reported_by
from transforms.schema.diff import AttributeTree

pytestmark = [pytest.mark.spark]

RULES: dict[str, Any] = {"namespaces": {"user": {"priority": 1}, "email": {"priority": 2}}}
FRAGMENTS = 700
SWEPT = """
from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import load
from ingestion.spark.projection_tasks import ProjectionTasks
from transforms.schema.diff import AttributeTree

settings = load(folder / "shop" / "idgraph.toml")
tasks = ProjectionTasks(
    wiring.worker_plan(settings), lambda: metadata_access.snapshot_to_read_by(settings), lambda: True
)
# As with three cores.
tasks._tasks, tasks._is_busy = lambda: 3, True
rules = AttributeTree(metadata_access.snapshot_to_read_by(settings).snapshot).index_rules
with wiring.opened(settings) as resources, tasks.on(session):
    resources.index.put = None  # By workers alone.
    swept = resources.projection(lambda: rules, tasks).sweep()
    reported.update({"projected": swept.projected, "left": swept.left(), "most": tasks.at_once})
"""


def event(number: int) -> IdentityEvent:
    """One of a person's two fragments."""
    ids = [["user", str(number)], ["email", f"{number // 2}@x.example"]]
    said = {"id": str(number), "t": "2026-03-02T09:00:00Z", "source": "web", "ids": ids}
    return IdentityEvent.model_validate(said)


def keep(settings: Settings, rules: dict[str, Any], version: int) -> IndexRules:
    """Let these identity rules be in force."""
    changed = {"identity_rules": IdentityRules.model_validate(rules), "identity_rules_version": version}
    known = snapshot(version).model_copy(update=changed)
    kept = {"etag": f'"{version}"', "snapshot": known.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(settings), json.dumps(kept).encode())
    return AttributeTree(known).index_rules


def test_the_index_is_as_by_one_sweep(tmp_path: Path) -> None:
    KeyringFile.create(tmp_path / "keyring.json")
    installation = Installation(
        tmp_path / "shop", Shop("http://127.0.0.1:9", "none", tmp_path / "keyring.json")
    )
    settings = load(installation.config)
    wiring.prepare_directory(settings)
    keep(settings, RULES, 0)
    scenario = Scenario({"rules": RULES})
    with wiring.opened(settings) as resources:
        scenario.store = resources.store
        scenario.take(map(event, range(FRAGMENTS)))
    for rules, version, persons in (
        (RULES, 0, FRAGMENTS // 2),
        ({**RULES, "least_strength": 2}, 1, FRAGMENTS),
    ):
        in_force = keep(settings, rules, version)
        reported = reported_by(SWEPT, tmp_path)
        assert (reported["left"], reported["most"]) == (0, 6000)
        # Twice for persons in two tasks.
        assert FRAGMENTS <= reported["projected"] <= 2 * FRAGMENTS
        with wiring.opened(settings) as resources:
            assert resources.store.outbox() == []
            pages = Persons(resources.store, Rules(in_force.identity)).scan()
            found = [person for page in pages for person in page.persons]
            documents = documents_of(found, in_force).documents
            assert len(documents) == resources.index.count(Query()) == persons
            assert all(each.is_same for each in resources.index.compare(documents).values())
