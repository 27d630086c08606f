"""Laws 4 and 6: one snapshot an event, edits in force without a restart, and life without the service."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import metadata_access
from idgraph.app.settings.document import load
from idgraph.model.specs import SpecDefinition
from idgraph.snapshot_file import kept_snapshot
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from sinks.keyring.provider import KeyringFile
from tests.installation import EXAMPLES, Installation, Shop, kill_tree, retail, until
from tests.metadata_service.made_tokens import create_token
from tests.spark.conftest import declare
from tests.undisturbed import take

pytestmark = pytest.mark.spark


def exported(installation: Installation) -> dict[str, Any]:
    lines = installation.export("--provenance").splitlines()
    return {profile["id"]: profile for profile in map(json.loads, lines)}


def spec_versions(installation: Installation) -> set[int]:
    """Of the snapshot that the flow has."""
    kept = kept_snapshot(metadata_access.snapshot_file(load(installation.config)))
    assert kept is not None
    return {spec.ref.version for spec in kept.snapshot.specs}


def test_an_edit_is_in_force_while_the_stream_runs_and_no_event_is_split(tmp_path: Path) -> None:
    KeyringFile.create(tmp_path / "keyring.json")
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    token = create_token(app.state.service.database, "tests", Role.ADMIN)
    edited = SpecDefinition.model_validate_json((EXAMPLES / "retail" / "edits" / "segment.json").read_bytes())
    lines = retail("segment")
    with serving(app) as url, MetadataClient(url, token) as client:
        declare(client)
        installation = Installation(tmp_path / "shop", Shop(url, token, tmp_path / "keyring.json"))
        # With a Java process of its own: where broadcasts lie is asked to it once.
        process = installation.start()
        try:
            installation.publish("segment", lines[:50])
            until(
                lambda: sum(batch["events"] for batch in installation.batches()) == 50, what="the first batch"
            )
            assert client.put_spec(edited, "test").active_version == 2
            for start in range(50, 1050, 100):
                installation.publish("segment", lines[start : start + 100])
            until(lambda: 2 in spec_versions(installation), what="the edit in the flow's snapshot")
            for start in range(1050, 2050, 100):
                installation.publish("segment", lines[start : start + 100])
            until(
                lambda: sum(batch["events"] for batch in installation.batches()) == 2050,
                what="the last batch",
            )

            # Attributes that nobody declared reach the catalogue while the stream runs.
            until(lambda: client.get_attribute("activity.library.version") is not None, what="the discovery")
            found = client.get_attribute("activity.library.version")
            assert found is not None
            assert found.status == "discovered"
            assert found.source == "segment"

            # The spec that was activated made another snapshot; of those that were sent the newest is kept.
            snapshots = {batch["snapshot"] for batch in installation.batches()}
            assert len(snapshots) > 1
            broadcasts = [path for path in installation.folder.rglob("pyspark-*/*") if path.is_file()]
            assert len(broadcasts) == 1
        finally:
            process.terminate()
            assert process.wait(60) == 0
        # A flow that ends reports the rest of what it made of its specs: here of the version in force.
        (health,) = (each for each in client.spec_health()[0] if each.name == edited.name)
        (use,) = health.uses
        assert (health.version, use.source, use.errors) == (2, "segment", 0)
        assert 1000 <= use.events < 2050
        assert "/userId" not in use.unread
    by_event: dict[tuple[str, str], set[int]] = {}
    for profile in exported(installation).values():
        for origin in profile["provenance"].values():
            by_event.setdefault((profile["id"], origin["event"]), set()).add(origin["spec_version"])
    assert all(len(versions) == 1 for versions in by_event.values())
    assert {version for versions in by_event.values() for version in versions} == {1, 2}


@pytest.mark.long
def test_without_the_service_the_last_snapshot_serves(tmp_path: Path) -> None:
    KeyringFile.create(tmp_path / "keyring.json")
    database = f"sqlite:///{tmp_path / 'metadata.db'}"
    app = create_app(ServiceSettings(database))
    token = create_token(app.state.service.database, "tests", Role.ADMIN)
    with ExitStack() as service:
        url = service.enter_context(serving(app))
        shop = Shop(url, token, tmp_path / "keyring.json")
        installation = Installation(tmp_path / "shop", shop)
        installation.publish("segment", retail("segment")[:100])
        # Down at the start with nothing to fall back on, and a refused token: clear words, nothing read.
        lost = Installation(tmp_path / "lost", Shop("http://127.0.0.1:9", token, shop.keyring))
        lost.publish("segment", retail("segment")[:100])
        refused = lost.command("run", "--until-done", code=5)
        assert b"127.0.0.1:9" in refused.stderr
        assert b"Traceback" not in refused.stderr
        wrong = Installation(tmp_path / "lost", Shop(url, "wrong-token-wrong-token", shop.keyring))
        refused = wrong.command("run", "--until-done", code=5)
        assert b"401" in refused.stderr
        assert b"wrong-token" not in refused.stderr
        with MetadataClient(url, token) as client:
            declare(client)
        process = installation.start()
        try:
            until(lambda: installation.batches() or process.poll() is not None, what="a batch")
            # The service is gone: the running flow continues, and so does one that starts now.
            service.close()
            installation.publish("segment", [*retail("segment")[100:200]])
            until(
                lambda: sum(batch["events"] for batch in installation.batches()) == 200,
                what="a batch without service",
            )
        finally:
            kill_tree(process)
    invented = json.loads(retail("segment")[0])
    invented["properties"]["query"] = {"never": "declared"}
    installation.publish("segment", [json.dumps(invented).encode()])
    installation.run()

    # What was discovered meanwhile waits on disk, and reaches the service when it is back.
    waiting = (installation.folder / ".idgraph/flows/shop/schema-changes.jsonl").read_text()
    assert "activity.search.query.never" in waiting
    with serving(create_app(ServiceSettings(database))) as url:
        back = Installation(tmp_path / "shop", Shop(url, token, shop.keyring))
        back.run()
        with MetadataClient(url, token) as client:
            assert client.get_attribute("activity.search.query.never") is not None
    clean = Installation(tmp_path / "clean", shop)
    flow = clean.folder / ".idgraph/flows/shop"
    flow.mkdir(parents=True, mode=0o700)
    shutil.copy(installation.folder / ".idgraph/flows/shop/snapshot.json", flow)
    take(clean, {"segment": [*retail("segment")[:200], json.dumps(invented).encode()]})
    assert clean.export() == back.export()
