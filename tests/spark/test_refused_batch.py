"""Laws 1, 4 and 5 for a micro-batch that the guard refused and that ran again under a repaired spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from sinks.keyring.provider import KeyringFile
from tests.installation import Installation, Shop, retail
from tests.metadata_service.made_tokens import create_token
from tests.retail import definition
from tests.spark.conftest import declare
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_after_the_spec_is_mended_nothing_shows_that_the_batch_was_refused(tmp_path: Path) -> None:
    KeyringFile.create(tmp_path / "keyring.json")
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    token = create_token(app.state.service.database, "tests", Role.ADMIN)
    limits = {"max_rate": 0.1, "minimum": 10, "window": 1000}
    with serving(app) as url, MetadataClient(url, token) as client:
        declare(client)
        # Events of other types than `track` find no spec: many enough to stop the flow.
        client.put_spec(definition("segment", event_type="track"))
        shop = Shop(url, token, tmp_path / "keyring.json")
        installation = Installation(tmp_path / "refused", shop, dead_letters=limits, split_bytes=40_000)
        installation.publish("segment", retail("segment")[:600])
        installation.publish("orders", retail("orders")[:100])
        stopped = installation.command("run", "--until-done", code=4)
        assert b"became dead letters" in stopped.stderr
        assert b"no_spec" in stopped.stderr
        assert b"Traceback" not in stopped.stderr
        set_aside = len(installation.dead_letters())
        assert set_aside > 60
        # Stopped means stopped: the same again until the cause is repaired, and no dead letter twice.
        installation.command("run", "--until-done", code=4)
        assert len(installation.dead_letters()) == set_aside
        # What was good is committed, by the version that was in force.
        assert b'"spec":"shop-segment","spec_version":2' in installation.export("--provenance")

        # Repaired: the micro-batch is read again, and its dead letters of before are gone.
        assert client.put_spec(definition("segment")).active_version == 3
        installation.run()
        assert installation.dead_letters() == []
        clean = Installation(tmp_path / "clean", shop)
        take(clean, {"segment": retail("segment")[:600], "orders": retail("orders")[:100]})
        profiles = installation.profiles()
        assert profiles == clean.profiles()
    assert b'"spec":"shop-segment","spec_version":3' in profiles
    assert b'"spec":"shop-segment","spec_version":2' not in profiles
