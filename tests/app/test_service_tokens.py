"""Tokens: people, the flow and the profile service have one of their own each."""

from __future__ import annotations

from contextlib import closing

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.metadata_server import serving_here
from idgraph.model.errors import ConfigError, UnauthorizedError
from metadata_service.storage.database import open_database
from metadata_service.storage.tokens import Role, TokenRecord, authenticate, list_tokens
from sinks.http.metadata import MetadataClient
from tests.app.conftest import CommandLine

CHOSEN = "the-token-of-the-pipeline-which-somebody-configured"


def made(idgraph: CommandLine) -> dict[str, TokenRecord]:
    with closing(open_database(idgraph.settings().database_url())) as database:
        return {token.name: token for token in list_tokens(database)}


def role_of(idgraph: CommandLine, token: str) -> Role | None:
    with closing(open_database(idgraph.settings().database_url())) as database:
        found = authenticate(database, token)
    return found and found.role


def test_a_configured_token_never_becomes_an_admin(
    idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_METADATA__TOKEN", CHOSEN)
    with (
        serving_here(idgraph.settings()) as url,
        MetadataClient(url, CHOSEN) as client,
        pytest.raises(UnauthorizedError),
    ):
        client.snapshot()
    assert role_of(idgraph, CHOSEN) is None
    assert made(idgraph)["first-admin"].role is Role.ADMIN


def test_a_flow_does_not_work_by_the_admins_token(served: CommandLine) -> None:
    settings = served.settings()
    tokens = {
        Role.ADMIN: metadata_access.metadata_token(settings),
        Role.PIPELINE: metadata_access.flow_token(settings),
        Role.SERVICE: metadata_access.profiles_token(settings),
    }
    for role, token in tokens.items():
        assert role_of(served, token) is role
    admin = made(served)["first-admin"]
    assert admin.expires is not None
    assert (admin.expires - admin.created).days <= 90
    with (
        closing(metadata_access.flow_client(settings)) as client,
        pytest.raises(UnauthorizedError, match="pipeline"),
    ):
        client.put_defaults(client.get_defaults())


def test_the_service_starts_after_its_first_admin_was_revoked(idgraph: CommandLine) -> None:
    for _ in range(2):
        with serving_here(idgraph.settings()):
            pass
        idgraph("tokens", "revoke", "first-admin")
    assert [token for token in made(idgraph).values() if token.role is Role.ADMIN and not token.revoked] == []


def test_a_removed_token_of_the_flow_is_not_made_while_the_old_one_works(idgraph: CommandLine) -> None:
    with serving_here(idgraph.settings()):
        pass
    file = idgraph.settings().flow_token_file()
    file.unlink()
    with serving_here(idgraph.settings()):
        pass
    assert not file.exists()
    with pytest.raises(ConfigError, match="idgraph tokens add NAME --role pipeline"):
        metadata_access.flow_token(idgraph.settings())
    idgraph("tokens", "revoke", "flow")
    with serving_here(idgraph.settings()):
        pass
    assert role_of(idgraph, metadata_access.flow_token(idgraph.settings())) is Role.PIPELINE


def test_a_new_database_gets_new_tokens(idgraph: CommandLine) -> None:
    settings = idgraph.settings()
    wiring.prepare_directory(settings)
    for file in (settings.token_file(), settings.flow_token_file(), settings.profiles_token_file()):
        file.write_text("of-a-database-that-is-lost")
    with serving_here(settings):
        pass
    assert role_of(idgraph, metadata_access.metadata_token(settings)) is Role.ADMIN
    assert role_of(idgraph, metadata_access.flow_token(settings)) is Role.PIPELINE
    assert role_of(idgraph, metadata_access.profiles_token(settings)) is Role.SERVICE


def test_tokens_of_other_machines_are_not_made_here(
    idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_METADATA__FLOW_TOKEN_FILE", "/nowhere/flow.token")
    monkeypatch.setenv("IDGRAPH_PROFILES__TOKEN_FILE", "/nowhere/profiles.token")
    with serving_here(idgraph.settings()):
        pass
    assert made(idgraph).keys() == {"first-admin"}
