"""Sources in Kafka, as the configuration has them: what is refused, with its place, and what is never reported."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from idgraph.app.adapters.inputs import _opened_ranges, formats_config, open_formats, require_formats
from idgraph.app.settings.document import Settings, load
from idgraph.app.wiring import worker_plan
from idgraph.model.errors import ConfigError
from idgraph.model.flows import HeldSources
from idgraph.model.kafka import REFUSED, KafkaSource
from ingestion.sources.kafka.stream import KafkaStream
from sinks.document_folder import DocumentFolder

KAFKA = '[[sources]]\nname = "shop"\nkind = "kafka"\ntopics = ["shop"]\n'
FILES = '[[sources]]\nname = "web"\npath = "inbox"\n'


def loaded(folder: Path, text: str) -> Settings:
    file = folder / "idgraph.toml"
    file.write_text(text, encoding="utf-8")
    return load(file)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return str(caught.value)


def test_a_source_is_files_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert loaded(tmp_path, FILES).file_source("web").path == tmp_path / "inbox"
    source = loaded(tmp_path, KAFKA).source("shop")
    assert isinstance(source, KafkaSource)
    assert source.topics == ("shop",)
    with pytest.raises(ConfigError, match="source shop is in topics"):
        loaded(tmp_path, KAFKA).file_source("shop")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (FILES + KAFKA, "either files or topics of one Kafka or Pulsar cluster"),
        (KAFKA + KAFKA.replace('"shop"\nkind', '"more"\nkind'), "two sources have the same topic"),
        (KAFKA.replace("kafka", "kafak"), "sources.0: kind must be one of: files, kafka"),
        (KAFKA + 'topic = "shop"', "line 5: sources.0.topic: unknown key; did you mean 'topics'?"),
        (KAFKA.replace('["shop"]', "[]"), "sources.0: give either topics or topic_pattern"),
        (KAFKA + 'topic_pattern = "a"', "sources.0: give either topics or topic_pattern"),
        (KAFKA.replace('["shop"]', '["shop", "a/b"]'), "sources.0: topics.1 is no name of a topic"),
        (KAFKA.replace('topics = ["shop"]', 'topic_pattern = "("'), "topic_pattern is no regular expression"),
        (FILES + "type = { key = true }", "type: a line of a file has no key, header or timestamp beside it"),
        (KAFKA + "type = { timestamp = true }", "type cannot be the record's timestamp"),
        (KAFKA + "id = { key = true, content = true }", "give exactly one of"),
        (KAFKA + 'format = "avro"', "schema_file is for the formats avro and protobuf"),
        (KAFKA + 'schema_file = "a"', "schema_file is for the formats avro and protobuf"),
        (KAFKA + 'format = "protobuf"\nschema_file = "a"', "message is for the format protobuf"),
        (
            KAFKA + 'format = "registry"',
            "source shop has the format registry, but [kafka.registry] has no url",
        ),
        ('[kafka.registry]\nurl = "http://me:secret@there"', "line 2: kafka.registry.url"),
        ('[kafka.producer]\nacks = "1"', "acks cannot be set"),
        ("[kafka]\nmax_offsets_per_batch = 0", "line 2: kafka.max_offsets_per_batch"),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, text: str, reported: str) -> None:
    assert reported in refused(tmp_path, text)


@pytest.mark.parametrize("option", [*REFUSED, "kafka.group.id"])
def test_options_that_would_lose_or_change_events_are_refused(tmp_path: Path, option: str) -> None:
    message = refused(tmp_path, f'[kafka.consumer]\n"{option}" = "s3cret"')
    assert f"{option} cannot be set: {REFUSED[option.removeprefix('kafka.')]}" in message
    assert "s3cret" not in message


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="s3cret";'


def test_other_options_reach_the_consumer_and_their_secrets_nobody_else(tmp_path: Path) -> None:
    text = f'{KAFKA}[kafka.consumer]\n"sasl.jaas.config" = \'{JAAS}\'\n"fetch.max.bytes" = "1000"\n'
    settings = loaded(tmp_path, text)
    source = settings.source("shop")
    assert isinstance(source, KafkaSource)
    stream = KafkaStream(
        {"shop": source}, settings.kafka, tmp_path, HeldSources(DocumentFolder(tmp_path), "")
    )
    options = stream._options(2, 100)
    assert options["kafka.sasl.jaas.config"] == JAAS
    assert options["kafka.fetch.max.bytes"] == "1000"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["failOnDataLoss"] == "true"
    assert "s3cret" not in repr(settings)
    reported = stream.without_secrets(f"Invalid value {JAAS} or s3cret for fetch.max.bytes 1000")
    assert "s3cret" not in reported
    assert reported.endswith("for fetch.max.bytes 1000")


def test_the_environment_gives_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDGRAPH_KAFKA__CONSUMER", '{"ssl.truststore.password": "s3cret"}')
    settings = loaded(tmp_path, KAFKA)
    assert settings.kafka.secrets() == {"s3cret"}
    monkeypatch.setenv("IDGRAPH_KAFKA__CONSUMER", '{"group.id": "s3cret"}')
    message = refused(tmp_path, KAFKA)
    assert "group.id cannot be set" in message
    assert "s3cret" not in message


def test_no_secret_is_in_what_workers_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by review: passwords of the client were in each task's closure."""
    text = f'{KAFKA}[kafka]\nbootstrap_servers = "there:9"\n[kafka.producer]\n"sasl.password" = "s3cret"\n'
    monkeypatch.setenv("IDGRAPH_KAFKA__PRODUCER", '{"ssl.key.password": "hidden"}')
    settings = loaded(tmp_path, text)
    plan = worker_plan(settings)
    for shown in (repr(plan).encode(), plan.settings.encode(), pickle.dumps(plan.settings)):
        assert b"s3cret" not in shown
        assert b"hidden" not in shown
    ranges = _opened_ranges(json.loads(plan.settings)["ranges"]["config"])
    given = {
        name: ranges._settings[name] for name in ("sasl.password", "ssl.key.password", "bootstrap.servers")
    }
    assert list(given.values()) == ["s3cret", "hidden", "there:9"]


def test_topics_of_all_sources_are_one_subscription(tmp_path: Path) -> None:
    def subscription(text: str) -> str:
        settings = loaded(tmp_path, text)
        sources = {each.name: each for each in settings.sources if isinstance(each, KafkaSource)}
        options = KafkaStream(
            sources, settings.kafka, tmp_path, HeldSources(DocumentFolder(tmp_path), "")
        )._options(2, 100)
        return options.get("subscribe") or options["subscribePattern"]

    more = '[[sources]]\nname = "more"\nkind = "kafka"\n'
    assert subscription(KAFKA + more + 'topics = ["a", "b.c"]') == "shop,a,b.c"
    assert subscription(KAFKA + more + "topic_pattern = 'log\\..*'") == r"(?:shop)|(?:log\..*)"


def test_a_password_that_begins_with_the_name_of_the_user_is_hidden_whole(tmp_path: Path) -> None:
    login = 'org.apache.Login required username="admin" password="admin-s3cret";'
    settings = loaded(tmp_path, f"{KAFKA}[kafka.consumer]\n\"sasl.jaas.config\" = '{login}'\n")
    source = settings.source("shop")
    assert isinstance(source, KafkaSource)
    stream = KafkaStream(
        {"shop": source}, settings.kafka, tmp_path, HeldSources(DocumentFolder(tmp_path), "")
    )
    assert "s3cret" not in stream.without_secrets(f"oops: {login}")
    assert "s3cret" not in stream.without_secrets("oops: admin-s3cret")


def test_a_schema_file_that_cannot_be_used_is_reported_before_anything_runs(tmp_path: Path) -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed: pip install -e .[schemas]")
    text = KAFKA + 'format = "avro"\nschema_file = "shop.avsc"\n'
    with pytest.raises(ConfigError, match=r"source shop: .*shop\.avsc: No such file"):
        formats_config(loaded(tmp_path, text))
    (tmp_path / "shop.avsc").write_text("{")
    settings = loaded(tmp_path, text)
    with pytest.raises(ConfigError, match=r"source shop: .*shop\.avsc: the schema is no Avro schema"):
        require_formats(settings, open_formats(formats_config(settings)))
    (tmp_path / "shop.avsc").write_text('"long"')
    require_formats(settings, open_formats(formats_config(settings)))
