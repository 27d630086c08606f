"""Records of Kafka, without a broker: as bytes and back, their envelope, what is too large, which source they are of."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.errors import ConfigError, EventError
from idgraph.model.events import Event, RawRecord
from idgraph.model.kafka import KafkaSource
from idgraph.model.sources import ValuePlace
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.kafka.envelope import KafkaEnvelopeReader, frame, unframe
from ingestion.sources.kafka.records import KafkaRecords, source_of_topic

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=4)


@given(
    st.none() | st.binary(max_size=20), HEADERS, st.integers(-1, 2**53), st.none() | st.binary(max_size=50)
)
def test_what_is_framed_comes_back(
    key: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int, payload: bytes | None
) -> None:
    carried, found = unframe(frame(key, headers, timestamp, payload))
    assert found == payload
    assert carried.timestamp == timestamp
    assert (carried.key is None) is (key is None)
    assert set(carried.headers) == {name for name, _ in headers}


@given(st.binary(max_size=60))
def test_other_bytes_are_reported_or_are_a_frame(content: bytes) -> None:
    try:
        carried, payload = unframe(content)
    except EventError:
        return
    assert isinstance(carried.timestamp, int)
    assert payload is None or content.endswith(payload)


def test_text_is_text_and_other_bytes_are_reported_as_base64() -> None:
    carried, _ = unframe(frame("Ü".encode(), [("a", b"\xff"), ("a", b"last"), ("n", None)], 5, b"{}"))
    assert carried.key == "Ü"
    assert carried.headers == {"a": "last", "n": None}
    assert unframe(frame(b"\xff", [], 5, b"{}")).carried.key == "base64:/w=="


@given(st.binary(max_size=9), st.binary(max_size=9))
@example(b"\xff", b"base64:/w==")
@example(b"base64:", b"base64:YmFzZTY0Og==")
def test_no_two_keys_look_the_same(one: bytes, other: bytes) -> None:
    reported = [unframe(frame(key, [("h", key)], 5, None)).carried for key in (one, other)]
    assert (reported[0] == reported[1]) is (one == other)


def source(**config: Any) -> KafkaSource:
    return KafkaSource.model_validate({"name": "shop", "kind": "kafka", "topics": ["shop"], **config})


def read(config: KafkaSource, payload: bytes | None, key: bytes | None = None, **headers: bytes) -> Event:
    record = RawRecord(
        "shop", "kafka:shop/0/7", frame(key, list(headers.items()), 1_700_000_000_000, payload)
    )
    return KafkaEnvelopeReader(config).read(record)


def test_the_envelope_stands_in_the_payload_as_in_a_file() -> None:
    event = read(source(type={"path": "t"}, id={"path": "i"}), b'{"t": "order", "i": 3}', b"k", h=b"v")
    assert (event.source, event.type, event.id, event.ordinal) == ("shop", "order", "3", None)
    assert event.payload == {"t": "order", "i": 3}
    assert not event.is_deletion()
    context = event.context()
    assert (context["key"], context["headers"], context["timestamp"]) == ("k", {"h": "v"}, 1_700_000_000_000)
    assert context["position"] == "kafka:shop/0/7"


def test_the_envelope_stands_beside_the_payload() -> None:
    config = source(
        source={"header": "system"}, type={"header": "type"}, id={"key": True}, ordinal={"timestamp": True}
    )
    event = read(config, b'{"a": 1}', b"k7", type=b"order", system=b"till")
    assert event[:4] == ("till", "order", "k7", 1_700_000_000_000)
    assert event.payload == {"a": 1}


def test_an_ordinal_in_a_header_is_a_number_or_a_time() -> None:
    config = source(ordinal={"header": "at"})
    assert read(config, b"{}", at=b"42").ordinal == 42
    assert read(config, b"{}", at=b"1970-01-01T00:00:01Z").ordinal == 1000
    with pytest.raises(EventError, match="bad_ordinal"):
        read(config, b"{}", at=b"yesterday")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"type": {"header": "type"}}, "missing_type"),
        ({"source": {"key": True}}, "missing_source"),
    ],
)
def test_what_is_missing_beside_the_payload_is_reported(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(EventError, match=reason):
        read(source(**config), b"{}")


def test_a_damaged_payload_is_reported_as_of_a_file() -> None:
    for payload, reason in (
        (b"{", "not_json"),
        (b"", "not_json"),
        (b"[]", "not_object"),
        (b"null", "not_object"),
    ):
        with pytest.raises(EventError, match=reason):
            read(source(), payload)


def test_a_payload_cannot_pass_for_what_stands_beside_it() -> None:
    event = read(source(), b'{"key": "other",\n"headers": {}}', b"mine")
    assert event.context()["key"] == "mine"


def test_a_record_without_a_payload_is_an_event_of_its_own_type() -> None:
    event = read(source(type={"path": "t"}, id={"path": "i"}, ordinal={"path": "at"}), None, b"k")
    assert event.is_deletion()
    assert event[:4] == ("shop", "tombstone", "kafka:shop/0/7", 1_700_000_000_000)
    assert (event.payload, event.context()["key"]) == (None, "k")
    assert read(source(tombstone_type="gone", type={"const": "order"}), None).type == "gone"
    assert read(source(type={"header": "t"}, id={"key": True}), None, b"k", t=b"gone")[1:3] == ("gone", "k")
    assert read(source(ordinal_unit="sequence"), None).ordinal is None
    assert read(source(ordinal_unit="sequence", ordinal={"const": 0}), None).ordinal == 0


def as_headers(**values: bytes) -> str:
    """As Spark gives them."""
    return canonical.encode(
        [{"key": name, "value": b64encode(value).decode()} for name, value in values.items()]
    ).decode()


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_rows_are_records_with_their_place(kind: type) -> None:
    rows = [
        ("shop", 0, 7, 5, kind(b"k"), kind(b'{"a": 1}'), as_headers(h=b"v")),
        ("shop", 1, 2, 6, None, None, None),
    ]
    first, second = KafkaRecords({"shop": source()}, 1000, rows).records()
    assert isinstance(first, RawRecord)
    assert type(first.value) is bytes
    assert first == RawRecord("shop", "kafka:shop/0/7", frame(b"k", [("h", b"v")], 5, b'{"a": 1}'))
    assert second == RawRecord("shop", "kafka:shop/1/2", frame(None, [], 6, None))


@pytest.mark.parametrize("part", ["payload", "key", "header"])
def test_what_is_too_large_is_cut_wherever_it_is(part: str) -> None:
    large = b"x" * 200
    row = (
        "shop",
        0,
        7,
        5,
        large if part == "key" else None,
        large if part == "payload" else b"{}",
        as_headers(h=large) if part == "header" else None,
    )
    (found,) = KafkaRecords({"shop": source()}, 100, [row]).records()
    assert isinstance(found, DamagedRecord)
    assert found.reason == "too_large"
    assert len(found.record.value) < 150


def test_topics_are_of_the_source_that_names_them_before_a_pattern() -> None:
    sources = {
        "any": source(name="any", topics=[], topic_pattern="shop.*"),
        "shop": source(),
        "logs": source(name="logs", topics=[], topic_pattern=r"log\.[0-9]+"),
    }
    assert [source_of_topic(each, sources) for each in ("shop", "shop2", "log.7")] == ["shop", "any", "logs"]
    for stranger in ("log.7x", "ashop"):
        with pytest.raises(ConfigError, match=f"no source has the topic {stranger}"):
            source_of_topic(stranger, sources)


def test_a_place_beside_the_payload_is_for_kafka() -> None:
    with pytest.raises(ValueError, match="only ordinal can"):
        source(id=ValuePlace(timestamp=True))


def test_an_id_of_the_content_is_of_key_headers_and_payload() -> None:
    config = KafkaSource.model_validate(
        {"name": "s", "kind": "kafka", "topics": ["t"], "id": {"content": True}, "type": {"header": "type"}}
    )

    def identifier(key: bytes, kind: bytes, timestamp: int) -> str | None:
        record = frame(key, [("type", kind)], timestamp, b'{"a":1}')
        return KafkaEnvelopeReader(config).read(RawRecord("s", "kafka:t/0/1", record)).id

    made = identifier(b"k", b"created", 1)
    assert made == identifier(b"k", b"created", 2), "sent again it is the same event"
    assert len({made, identifier(b"k", b"deleted", 1), identifier(b"l", b"created", 1)}) == 3
