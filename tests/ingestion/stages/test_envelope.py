from __future__ import annotations

from typing import Any

import pytest

from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError
from idgraph.model.events import RawRecord
from idgraph.model.sources import FileSource
from ingestion.stages.decode import EnvelopeReader


def read(record: Any, **config: Any) -> Any:
    raw = record if isinstance(record, bytes) else canonical.encode(record)
    source = FileSource.model_validate({"name": "shop", "path": "inbox", **config})
    return EnvelopeReader(source).read(RawRecord("shop", "file:inbox/x#1", raw))


def test_fields_come_from_configured_places() -> None:
    event = read(
        {
            "meta": {"kind": "order", "no": 7, "at": "2024-03-01T01:00:00+01:00", "from": "pos"},
            "body": {"a": 1},
        },
        type={"path": "meta.kind"},
        id={"path": "meta.no"},
        ordinal={"path": "meta.at"},
        source={"path": "meta.from"},
        payload="body",
    )
    assert event[:4] == ("pos", "order", "7", 1709251200000)
    assert event.payload == {"a": 1}


def test_defaults_name_the_source_after_the_configuration() -> None:
    event = read({"a": 1})
    assert (event.source, event.type, event.id, event.ordinal) == ("shop", "event", None, None)


def test_an_id_from_the_content_is_the_same_for_the_same_bytes() -> None:
    assert read({"a": 1}, id={"content": True}).id == read({"a": 1}, id={"content": True}).id
    assert read({"a": 1}, id={"content": True}).id != read({"a": 2}, id={"content": True}).id


@pytest.mark.parametrize(
    ("record", "config", "reason"),
    [
        (b"{", {}, DeadLetterReason.NOT_JSON),
        (b"\xff", {}, DeadLetterReason.NOT_JSON),
        (b'{"a":NaN}', {}, DeadLetterReason.NOT_JSON),
        (b'{"a":' * 100_000, {}, DeadLetterReason.NOT_JSON),
        (b"[1]", {}, DeadLetterReason.NOT_OBJECT),
        (b"7", {}, DeadLetterReason.NOT_OBJECT),
        # Found by use: a misspelt path mapped all events of a source to nothing, without a dead letter.
        ({"record": {"a": 1}}, {"payload": "recrod"}, DeadLetterReason.NOT_OBJECT),
        ({"record": 5}, {"payload": "record"}, DeadLetterReason.NOT_OBJECT),
        ({"record": "a"}, {"payload": "record.a"}, DeadLetterReason.NOT_OBJECT),
        ({"record": {}}, {"payload": "record.a"}, DeadLetterReason.NOT_OBJECT),
        ({"a": 1}, {"type": {"path": "t"}}, DeadLetterReason.MISSING_TYPE),
        ({"t": {}}, {"type": {"path": "t"}}, DeadLetterReason.WRONG_TYPE),
        ({"t": True}, {"type": {"path": "t"}}, DeadLetterReason.WRONG_TYPE),
        ({"t": "x" * 300}, {"type": {"path": "t"}}, DeadLetterReason.WRONG_TYPE),
        ({}, {"source": {"path": "s"}}, DeadLetterReason.MISSING_SOURCE),
        ({"i": [1]}, {"id": {"path": "i"}}, DeadLetterReason.WRONG_TYPE),
        ({"o": "yesterday"}, {"ordinal": {"path": "o"}}, DeadLetterReason.BAD_ORDINAL),
        ({"o": "2024-03-01T01:00:00"}, {"ordinal": {"path": "o"}}, DeadLetterReason.BAD_ORDINAL),
        ({"o": 2**63}, {"ordinal": {"path": "o"}}, DeadLetterReason.BAD_ORDINAL),
        ({"o": 1.5}, {"ordinal": {"path": "o"}}, DeadLetterReason.BAD_ORDINAL),
        ({"o": True}, {"ordinal": {"path": "o"}}, DeadLetterReason.BAD_ORDINAL),
    ],
)
def test_bad_records_have_a_reason(record: Any, config: dict[str, Any], reason: DeadLetterReason) -> None:
    with pytest.raises(EventError) as caught:
        read(record, **config)
    assert caught.value.reason == reason


@pytest.mark.parametrize("payload", [{"a": 1}, {}, [{"a": 1}], None])
def test_a_payload_is_an_object_an_array_or_null(payload: Any) -> None:
    assert read({"record": {"after": payload}}, payload="record.after").payload == payload


def test_messages_quote_nothing_of_the_record() -> None:
    for record, config in (
        (b'{"secret-4711" 1}', {}),
        ({"o": "secret-4711"}, {"ordinal": {"path": "o"}}),
        ({"t": ["secret-4711"]}, {"type": {"path": "t"}}),
        ({"t": "secret-4711"}, {"payload": "t"}),
    ):
        with pytest.raises(EventError) as caught:
            read(record, **config)
        assert "4711" not in str(caught.value)
