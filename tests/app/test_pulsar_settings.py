"""Sources in Pulsar, as the configuration has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from idgraph.app.settings.document import Settings, load
from idgraph.model.errors import ConfigError
from idgraph.model.pulsar import PulsarSource, full_name, position, record_position
from ingestion.sources.kafka.records import source_of_topic

PULSAR = '[[sources]]\nname = "shop"\nkind = "pulsar"\ntopics = ["shop", "persistent://eu/crm/people"]\n'
PATTERN = '[[sources]]\nname = "more"\nkind = "pulsar"\nnamespace = "eu/crm"\ntopic_pattern = "p.*"\n'


def loaded(folder: Path, text: str) -> Settings:
    file = folder / "idgraph.toml"
    file.write_text(text)
    return load(file)


def test_topics_have_full_names(tmp_path: Path) -> None:
    sources = loaded(tmp_path, PULSAR + PATTERN).sources_by_name()
    pulsar = {name: each for name, each in sources.items() if isinstance(each, PulsarSource)}
    assert pulsar["shop"].topics == ("public/default/shop", "eu/crm/people")
    assert [source_of_topic(each, pulsar) for each in ("eu/crm/people", "eu/crm/pets")] == ["shop", "more"]
    with pytest.raises(ConfigError, match="no source has the topic eu/other/pets"):
        source_of_topic("eu/other/pets", pulsar)


def test_positions_name_the_partition() -> None:
    assert record_position("eu/crm/people", 2, "7/8/9") == "pulsar:eu/crm/people-partition-2/7/8/9"
    assert record_position(full_name("shop"), -1, "7/8/0") == "pulsar:public/default/shop/7/8/0"


def test_where_a_flow_begins(tmp_path: Path) -> None:
    at_time = loaded(tmp_path, '[pulsar]\nstarting_position = "2026-01-01T00:00:00Z"\n').pulsar
    assert at_time.starting_position == datetime(2026, 1, 1, tzinfo=UTC)
    at_place = loaded(tmp_path, '[pulsar.starting_position.shop]\n1 = "12/34"\n').pulsar
    assert at_place.starts() == {"public/default/shop": {1: position(12, 34)}}
    assert loaded(tmp_path, "").pulsar.starting_position == "earliest"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PULSAR.replace('"shop", ', '"a/b", '), "topics.0 is no name of a topic"),
        (PULSAR.replace('"shop", ', '"shop-partition-1", '), "topics.0 is no name of a topic"),
        (PULSAR + 'topic_pattern = "a"', "give either topics or topic_pattern"),
        (PATTERN.replace("eu/crm", "eu"), "sources.0.namespace"),
        (PULSAR + PULSAR.replace('"shop"\nkind', '"b"\nkind'), "two sources have the same topic"),
        (PULSAR + '[pulsar]\nservice_url = "http://a:1"', "pulsar.service_url"),
        (PULSAR + '[pulsar]\nstarting_position = "yesterday"', "pulsar.starting_position"),
        (PULSAR + '[pulsar.starting_position.shop]\n1 = "12"', "shop.1 is not PARTITION = LEDGER/ENTRY"),
        (PULSAR + '[pulsar]\ncertificate_file = "a"', "belong together"),
        (
            PULSAR + '[pulsar]\ntoken_file = "t"\nadmin_url = "http://far:8080"',
            "plain HTTP beyond this machine",
        ),
        (
            PULSAR + '[pulsar]\ntoken_file = "t"\nservice_url = "pulsar://far:6650"',
            "plain HTTP beyond this machine",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        loaded(tmp_path, text)
