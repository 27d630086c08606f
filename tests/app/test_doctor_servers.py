"""`idgraph doctor` and backups on servers that there are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import checks
from tests.app.conftest import CommandLine
from tests.servers.dynamodb import require_dynamodb
from tests.servers.elasticsearch import require_elasticsearch
from tests.servers.kafka import running_kafka
from tests.support.patience import eventually

pytestmark = pytest.mark.long


def found(idgraph: CommandLine, check: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in idgraph("doctor", "--json").stdout.splitlines()]
    return [each for each in lines if each["check"] == check and each["kind"] != "ok"]


@pytest.fixture
def on_servers(with_keys: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """With profiles in DynamoDB and the index in Elasticsearch, where nothing was made yet."""
    monkeypatch.setattr(checks, "require_java", lambda: "java")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")
    name = f"doctor{abs(hash(str(with_keys.folder)))}"
    (with_keys.folder / "idgraph.toml").write_text(f"""
[store]
kind = "dynamodb"
region = "eu-central-1"
endpoint = "{require_dynamodb()}"
table_prefix = "{name}"
[index]
kind = "elasticsearch"
url = "{require_elasticsearch()}"
name = "{name}"
replicas = 0
""")
    return with_keys


def test_tables_and_an_index_that_are_missing_are_named_until_they_are_made(on_servers: CommandLine) -> None:
    missing = found(on_servers, "stores")
    index, *tables = missing
    assert (index["kind"], index["place"].split()[0]) == ("unreachable", "Elasticsearch")
    assert "there is no such index; `idgraph index create` makes it" in index["text"]
    assert len(tables) > 3
    assert {(each["kind"], each["command"]) for each in tables} == {("missing", "idgraph store create")}
    assert on_servers("store", "create").exit_code == 0
    assert on_servers("index", "create").exit_code == 0
    assert found(on_servers, "stores") == []


def test_what_is_not_on_servers_is_backed_up(on_servers: CommandLine, tmp_path: Path) -> None:
    assert on_servers("store", "create").exit_code == 0
    (on_servers.settings().flow_state() / "checkpoint" / "commits").mkdir(parents=True)
    (on_servers.settings().flow_state() / "checkpoint" / "commits" / "0").write_text("v1")
    made = on_servers("backup", tmp_path / "copy", "--with-keyring")
    assert made.exit_code == 0, made.output
    assert "restore the tables by point-in-time recovery to" in made.output
    shutil.rmtree(on_servers.settings().directory)
    restored = on_servers("restore", tmp_path / "copy")
    assert restored.exit_code == 0, restored.output
    assert "then `idgraph reindex`" in restored.output
    assert (on_servers.settings().flow_state() / "checkpoint" / "commits" / "0").exists()
    assert on_servers("keys", "list").exit_code == 0


def test_a_topic_that_is_missing_is_named(
    with_keys: CommandLine, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "require_java", lambda: "java")
    with running_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        (with_keys.folder / "idgraph.toml").write_text(f"""
[kafka]
bootstrap_servers = "{kafka.bootstrap_servers}"
[[sources]]
kind = "kafka"
name = "web"
topics = ["web"]
""")
        (one,) = found(with_keys, "Kafka")
        assert (one["kind"], one["place"]) == ("missing", f"{kafka.bootstrap_servers}, web")
        kafka.create("web")
        eventually(lambda: found(with_keys, "Kafka") == [])
