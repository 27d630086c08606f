"""`idgraph reindex` and `idgraph reconcile` on DynamoDB while a flow writes: killed, resumed, and nothing missing."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.shared_state import job_log
from idgraph.app.settings.document import Settings, load
from idgraph.model.index import IndexDocument
from idgraph.model.jobs import JobKind
from idgraph.model.queries import Query
from idgraph.projection.documents import documents_of
from tests.installation import RUN_SECONDS, Installation, Shop, kill_tree, retail, until
from tests.retail import persons_of
from tests.servers.dynamodb import require_dynamodb
from tests.servers.elasticsearch import place_of_index, require_elasticsearch
from tests.spark.conftest import FIRST, publish_first
from transforms.schema.diff import AttributeTree

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

SLOWLY = ("--rate", "30")


def index_settings(kind: str, folder: Path) -> dict[str, Any]:
    """An index of its own, of this kind."""
    if kind == "embedded":
        return {}
    name = place_of_index(folder).name + "-upkeep"
    return {"kind": "elasticsearch", "url": require_elasticsearch(), "name": name, "replicas": 0}


def installed(kind: str, folder: Path, shop: Shop) -> Installation:
    """An installation with its tables and its index."""
    tables = {
        "table_prefix": "upkeep-" + folder.name,
        "region": "eu-central-1",
        "endpoint": require_dynamodb(),
    }
    index = index_settings(kind, folder)
    installation = Installation(folder / "shop", shop, store={"kind": "dynamodb", **tables}, index=index)
    installation.command("store", "create")
    if index:
        installation.command("index", "create")
    return installation


class Running:
    """A flow that runs, and events that nobody has published before."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._published = sum(FIRST.values())

    def publish_more(self, named: str) -> None:
        """Some of the first events once more, as other events of other persons with the same attributes."""
        reported = [json.loads(line) for line in retail("orders")[:40]]
        for each in reported:
            each["order_id"] += named
            each["customer"]["email"] = named + each["customer"]["email"]
        self._installation.publish("orders", [json.dumps(each).encode() for each in reported])
        self._published += len(reported)

    def is_done(self) -> bool:
        """With all that was published."""
        return bool(sum(batch["events"] for batch in self._installation.batches()) == self._published)


@contextmanager
def running(installation: Installation) -> Iterator[Running]:
    """The flow, with the first events done; asked to end at the end."""
    publish_first(installation)
    process = installation.start()
    flow = Running(installation)
    try:
        until(lambda: flow.is_done() or process.poll() is not None, RUN_SECONDS, "the first events")
        yield flow
        until(lambda: flow.is_done() or process.poll() is not None, RUN_SECONDS, "the last events")
        process.send_signal(signal.SIGINT)
        assert process.wait(RUN_SECONDS) == 0
    finally:
        if process.poll() is None:
            kill_tree(process)


def killed(process: subprocess.Popen[bytes], condition: Any) -> None:
    """kill -9 once the condition holds, and before its end."""
    until(lambda: condition() or process.poll() is not None, what="that it has begun")
    process.kill()
    assert process.wait() == -signal.SIGKILL


def is_under_way(settings: Settings, kind: JobKind) -> bool:
    with job_log(settings) as log:
        return any(each.progress.done and each.state == "running" for each in log.scan(kind))


def assert_same(settings: Settings) -> None:
    """The index has the document of each profile and no other."""
    rules = AttributeTree(metadata_access.snapshot_to_read_by(settings).snapshot).index_rules
    with wiring.opened(settings) as resources:
        documents = documents_of(persons_of(resources.store), rules).documents
        assert resources.index.count(Query()) == len(documents)
        assert all(each.is_same for each in resources.index.compare(documents).values())


@pytest.mark.parametrize("kind", ["elasticsearch", "embedded"])
def test_beside_a_flow_and_killed(tmp_path: Path, shop: Shop, kind: str) -> None:
    installation = installed(kind, tmp_path, shop)
    settings = load(installation.config)
    with running(installation) as flow:
        process = installation.spawn("reindex", "reindex", *SLOWLY)
        # The flow writes into the version being made as well, so documents in it do not show that the job has begun.
        killed(process, lambda: is_under_way(settings, JobKind.REINDEX))
        flow.publish_more("between.")
        process = installation.spawn("again", "reindex", "--json", "--rate", "300")
        flow.publish_more("beside.")
        assert process.wait(RUN_SECONDS) == 0
        reported = json.loads((installation.folder / "again.out").read_bytes())
        assert reported["resumed"]
        assert reported["refused"] == 0

        process = installation.spawn("reconcile", "reconcile", *SLOWLY)
        killed(process, lambda: is_under_way(settings, JobKind.RECONCILE))
        flow.publish_more("later.")
        compared = installation.command("reconcile", "--json")
        assert b"comparing index and store resumes after" in compared.stderr
        assert sum(json.loads(compared.stdout)["drift"].values()) == 0
    assert_same(settings)

    with wiring.opened(settings) as resources:
        resources.index.put([IndexDocument("user_id:nobody", 1, {"x": 1})])
    installation.command("reconcile", code=6)
    installation.command("reconcile", "--repair")
    assert_same(settings)
