"""The examples of docs/kafka.md are what they say."""

from __future__ import annotations

import re
from pathlib import Path

from idgraph.app.settings.document import load
from idgraph.model.kafka import REFUSED, KafkaSource
from idgraph.model.specs import SpecDefinition, SpecDocument
from ingestion.sources.kafka.records import source_of_topic
from tests.ingestion.sources.test_kafka_stages import CHANGED, pipeline, record
from tests.retail import CREATED

TEXT = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")


def test_the_configuration_can_be_loaded(tmp_path: Path) -> None:
    example, _ = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "idgraph.toml"
    file.write_text(example, encoding="utf-8")
    settings = load(file)
    sources = {each.name: each for each in settings.sources if isinstance(each, KafkaSource)}
    assert settings.kafka.bootstrap_servers == "broker-1:9092,broker-2:9092"
    assert [source_of_topic(each, sources) for each in ("segment-events", "crm.customers.eu")] == [
        "segment",
        "crm",
    ]


def test_the_formats_can_be_loaded(tmp_path: Path) -> None:
    _, example = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "idgraph.toml"
    file.write_text(example, encoding="utf-8")
    sources = [each for each in load(file).sources if isinstance(each, KafkaSource)]
    assert [each.format for each in sources] == ["registry", "avro", "protobuf"]
    assert sources[1].schema_file == tmp_path / "schemas" / "receipt.avsc"


def test_the_spec_for_deletions_deletes(tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    stated = SpecDefinition.model_validate_json(example)
    deleted = SpecDocument(**stated.model_dump(), version=1, created=CREATED)
    for order in (1, -1):
        at = pipeline(tmp_path / str(order), CHANGED, deleted)
        at.process([record(1, {"city": "Rome"}), record(2, None)][::order])
        assert at.profile("customer:7") == {}


def test_all_options_that_are_refused_are_named() -> None:
    assert [name for name in REFUSED if f"`{name}`" not in TEXT and name != "bootstrap.servers"] == []
