"""A running flow seals what it stored before policy protected it: nothing of it is left in any file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from idgraph.model.attributes import AttributeDefinition, DataType, EncryptionLevel
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from sinks.keyring.provider import KeyringFile
from tests.canaries import content_of, seen
from tests.installation import Installation, Shop, retail, until
from tests.metadata_service.made_tokens import create_token
from tests.spark.conftest import declare

pytestmark = [pytest.mark.spark, pytest.mark.long]
OLD, NEW = "Zitronengelb-before", "Zitronengelb-after"
PATH = "activity.platform"
USER = "canary-user"


def searching(platform: str, number: int) -> bytes:
    line = json.loads(retail("segment")[0])
    changed = {
        "messageId": f"canary-{number}-{len(platform)}",
        "userId": f"{USER}-{number}",
        "platform": platform,
    }
    return json.dumps({**line, **changed}).encode()


def held(state: Path, *texts: str) -> list[str]:
    """The files of databases and of the index that hold one of these."""
    files = [*state.glob("*.db*"), *(each for each in state.glob("index/**/*") if each.is_file())]
    return sorted(path.name for path in files if seen(content_of(path), texts))


def test_a_running_flow_seals_what_it_stored(tmp_path: Path) -> None:
    KeyringFile.create(tmp_path / "keyring.json")
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    token = create_token(app.state.service.database, "tests", Role.ADMIN)
    with serving(app) as url, MetadataClient(url, token) as client:
        declare(client)
        installation = Installation(tmp_path / "shop", Shop(url, token, tmp_path / "keyring.json"))
        state = installation.folder / ".idgraph"
        with installation.running():
            installation.publish("segment", [*retail("segment")[1:50], searching(OLD, 1)])
            until(lambda: sum(b["events"] for b in installation.batches()) == 50, what="the first batch")
            assert "profiles.db" in {name.removesuffix("-wal") for name in held(state, OLD)}
            assert "profiles.db" in {name.removesuffix("-wal") for name in held(state, USER)}
            # At once, since each change must settle for a while. Profiles are named by the second.
            for path in (PATH, "identity.userId"):
                client.put_attribute(
                    AttributeDefinition(
                        path=path, data_type=DataType.STRING, encryption=EncryptionLevel.PROTECTED
                    )
                )
            until(lambda: held(state, OLD, USER) == [], what="the sealing and the renaming")
            installation.publish("segment", [searching(NEW, 2), searching(NEW, 1)])
            until(lambda: sum(b["events"] for b in installation.batches()) == 52, what="the second batch")
    assert held(state, OLD, NEW, USER) == []
    found = json.loads(installation.command("lookup", "--json", f"user_id:{USER}-1").stdout)
    assert found["id"].startswith("user_id:~"), "one profile, before and after"
    assert installation.command("seal", "--dry-run").stdout == b"0 values of 0 profiles to seal\n"
    assert NEW.encode() in installation.export("--reveal")
