"""The client of a schema registry: credentials, which no message shows, and its own connection in each process."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.model.backoff import Backoff
from idgraph.model.errors import ConfigError, SchemaRegistryError
from sinks.http.schema_registry import PASSWORD, HttpSchemaRegistry, RegistryLocation
from tests.servers.schema_registry import Registry, schema_registry

ONCE = Backoff(retries=0)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as served:
        served.credentials = base64.b64encode(b"reader:s3cret").decode()
        served.register("x", '"long"')
        yield served


def test_credentials_come_from_a_file_or_the_environment(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    assert (
        HttpSchemaRegistry(RegistryLocation(registry.url, "reader", str(file)), ONCE).schema(1).text
        == '"long"'
    )
    with pytest.raises(SchemaRegistryError, match="HTTP 401") as caught:
        HttpSchemaRegistry(RegistryLocation(registry.url), ONCE).schema(1)
    assert "s3cret" not in str(caught.value)
    monkeypatch.setenv(PASSWORD, "s3cret")
    client = HttpSchemaRegistry(RegistryLocation(registry.url, "reader"), ONCE)
    assert client.schema(1).kind == "AVRO"
    client.close()
    assert client.schema(1).kind == "AVRO", "opened again"
    client.close()


def test_credentials_that_cannot_be_read_are_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no password"):
        HttpSchemaRegistry(RegistryLocation("http://127.0.0.1:1", "reader"), ONCE).schema(1)
    with pytest.raises(ConfigError, match="missing"):
        HttpSchemaRegistry(
            RegistryLocation("http://127.0.0.1:1", "reader", str(tmp_path / "missing")), ONCE
        ).schema(1)
    with pytest.raises(ConfigError, match="ca_file"):
        HttpSchemaRegistry(
            RegistryLocation("https://127.0.0.1:1", ca_file=str(tmp_path / "missing")), ONCE
        ).schema(1)


def test_a_registry_that_is_not_there_is_reported_with_its_address() -> None:
    with pytest.raises(SchemaRegistryError, match=r"http://127.0.0.1:1: no answer"):
        HttpSchemaRegistry(RegistryLocation("http://127.0.0.1:1"), ONCE).schema(1)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_proxy_of_the_environment_sees_no_password(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.setenv(PASSWORD, "s3cret")
    assert HttpSchemaRegistry(RegistryLocation(registry.url, "reader"), ONCE).schema(1).text == '"long"'
