"""Payloads by a registry's schemas: a real registry over HTTP, asked once, away, or without the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro", reason="fastavro is not installed: pip install -e .[schemas]")
pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install -e .[schemas]")

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.model.backoff import Backoff
from idgraph.model.errors import ConfigError, EventError, SchemaRegistryError
from idgraph.model.events import RawRecord
from idgraph.model.kafka import KafkaSource
from idgraph.model.specs import SpecDocument
from ingestion.sources import payload_formats as registry_payloads
from ingestion.sources.kafka.envelope import frame
from ingestion.sources.payload_formats import PayloadFormats, RegistryPayloads, schema_decoder
from sinks.http.schema_registry import HttpSchemaRegistry, RegistryLocation
from tests.retail import CREATED, UNDETECTED, Pipeline, snapshot
from tests.servers.schema_registry import Registry, schema_registry
from tests.support.misfits import fits_or_is_reported
from tests.transforms.payloads.protobuf_files import MONEY, ORDER, message_class
from transforms.payloads import PayloadSchema

CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "mail", "type": ["null", "string"]},
        {"name": "balance", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}},
    ],
}
QUICK = Backoff(retries=2, base=0.001)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as served:
        yield served


def payloads(registry: Registry, waits: bool = True, **more: Any) -> RegistryPayloads:
    return RegistryPayloads(
        HttpSchemaRegistry(RegistryLocation(registry.url), QUICK), schema_decoder, waits, **more
    )


def led(number: int, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + content


def customer(number: int, mail: str = "a@example.com", cents: int = 12345) -> bytes:
    written = mail.encode()
    amount = cents.to_bytes(8, "big")
    return bytes([number * 2, 2, len(written) * 2]) + written + bytes([len(amount) * 2]) + amount


def test_avro_by_its_number_is_asked_for_once(registry: Registry) -> None:
    number = registry.register("customers-value", json.dumps(CUSTOMER))
    found = payloads(registry)
    for each in range(3):
        assert json.loads(found.decode(led(number, customer(each)))) == {
            "id": each,
            "mail": "a@example.com",
            "balance": 123.45,
        }
    assert registry.asked == [f"/schemas/ids/{number}"]


def test_avro_that_refers_to_others(registry: Registry) -> None:
    registry.register(
        "money", json.dumps({"type": "record", "name": "M", "fields": [{"name": "c", "type": "int"}]})
    )
    line = {"type": "record", "name": "L", "fields": [{"name": "m", "type": "M"}]}
    registry.register("line", json.dumps(line), references=[("M", "money")])
    order = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "l", "type": "L"}, {"name": "m", "type": "M"}],
    }
    number = registry.register("order", json.dumps(order), references=[("L", "line"), ("M", "money")])
    assert json.loads(payloads(registry).decode(led(number, b"\x02\x04"))) == {
        "l": {"m": {"c": 1}},
        "m": {"c": 2},
    }


def test_protobuf_says_which_message_it_is(registry: Registry) -> None:
    registry.register("money", "(text)", "PROTOBUF", serialized=MONEY.SerializeToString())
    number = registry.register(
        "order", "(text)", "PROTOBUF", [("money.proto", "money")], ORDER.SerializeToString()
    )
    found = payloads(registry)
    assert json.loads(found.decode(led(number, b"\0" + b"\x08\x02"))) == {"n": 1}
    order = message_class("shop.Order")(id=2**53 + 1).SerializeToString()
    assert json.loads(found.decode(led(number, b"\x02\x02" + order)))["id"] == 2**53 + 1
    assert json.loads(found.decode(led(number, b"\x04\x02\x02" + b"\x0a\x01x")))["sku"] == "x"
    for places in (b"", b"\x02", b"\x02\x08", b"\x02\x01", b"\x01", b"\xfe\x01" + b"\0" * 200, b"\xff" * 20):
        with pytest.raises(EventError, match="which message of its schema"):
            found.decode(led(number, places))


def test_json_with_a_number_is_json(registry: Registry) -> None:
    number = registry.register("j", '{"type": "object"}', "JSON")
    assert payloads(registry).decode(led(number, b'{"a": 1}')) == b'{"a": 1}'


@given(st.binary(max_size=12))
def test_other_bytes_are_json_or_our_error(payload: bytes) -> None:
    class OneSchema:
        def schema(self, number: int | str) -> PayloadSchema:
            return PayloadSchema("AVRO", '"long"')

        def close(self) -> None: ...

    with fits_or_is_reported():
        assert isinstance(
            json.loads(RegistryPayloads(OneSchema(), schema_decoder, True).decode(payload)), int
        )


def test_a_number_that_names_nothing_is_believed_for_a_while(registry: Registry) -> None:
    now = [0.0]
    found = payloads(registry, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(EventError, match=r"no_schema: schema 9: .* \(HTTP 404\)"):
            found.decode(led(9, b""))
    assert len(registry.asked) == 1
    now[0] = registry_payloads.REFUSED_SECONDS + 1
    with pytest.raises(EventError, match="no_schema"):
        found.decode(led(9, b""))
    assert len(registry.asked) == 2


@pytest.mark.parametrize(
    ("kind", "text"), [("AVRO", "{"), ("PROTOBUF", 'syntax = "proto3";'), ("XML", "<a/>")]
)
def test_a_schema_that_cannot_be_used_is_reported(registry: Registry, kind: str, text: str) -> None:
    number = registry.register("x", text, kind)
    with pytest.raises(EventError, match=f"no_schema: schema {number}: "):
        payloads(registry).decode(led(number, b"\0"))


def test_schemas_that_refer_to_each_other_are_reported(registry: Registry) -> None:
    registry.register("a", '"long"', references=[("B", "b")])
    number = registry.register("b", '"long"', references=[("A", "a")])
    with pytest.raises(EventError, match=r"no_schema: .* circle"):
        payloads(registry).decode(led(number, b"\0"))


@pytest.mark.parametrize("fault", [0, 200, 429, 500, 503])
def test_a_registry_that_is_away_is_asked_again(registry: Registry, fault: int) -> None:
    number = registry.register("x", '"long"')
    registry.faults.extend([fault, fault])
    assert payloads(registry).decode(led(number, b"\x0e")) == b"7"


@pytest.mark.parametrize("fault", [0, 200, 401, 500])
def test_a_registry_that_stays_away_is_waited_for_or_makes_dead_letters(
    registry: Registry, fault: int
) -> None:
    number = registry.register("x", '"long"')
    registry.faults.extend([fault] * 3)
    waiting = payloads(registry)
    with pytest.raises(SchemaRegistryError) as caught:
        waiting.decode(led(number, b"\x0e"))
    registry.faults.clear()
    assert waiting.decode(led(number, b"\x0e")) == b"7", "retried it passes"
    registry.faults.extend([fault] * 3)
    with pytest.raises(EventError, match="no_schema: schema 1: "):
        payloads(registry, waits=False).decode(led(number, b"\x0e"))
    assert "long" not in str(caught.value)


def test_what_is_known_needs_no_registry(registry: Registry) -> None:
    number = registry.register("x", '"long"')
    found = payloads(registry)
    found.decode(led(number, b"\x0e"))
    registry.faults.extend([0] * 9)
    assert found.decode(led(number, b"\x10")) == b"8"
    assert len(registry.faults) == 9


def test_only_so_many_schemas_are_kept(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_payloads, "KEPT", 2)
    numbers = [registry.register(str(each), '"long"') for each in range(3)]
    found = payloads(registry)
    for number in (*numbers, numbers[0]):
        assert found.decode(led(number, b"\x0e")) == b"7"
    assert len(registry.asked) == 4


SPEC = SpecDocument.model_validate(
    {
        "name": "crm",
        "specification_type": "chain",
        "source": "crm",
        "event_type": "customer",
        "status": "active",
        "operations": [{"operation": "shift", "spec": {"*": "&", "id": ["&", "_event.customer"]}}],
        "identifiers": [{"type": "customer", "path": "_event.customer", "primary": True}],
        "version": 1,
        "created": CREATED,
    }
)
CRM = {
    "name": "crm",
    "kind": "kafka",
    "topics": ["customers"],
    "type": {"const": "customer"},
    "id": {"key": True},
    "ordinal": {"timestamp": True},
}


def record(payload: bytes | None, offset: int = 1) -> RawRecord:
    value = frame(b"e%d" % offset, [], 1_711_000_000_000, payload)
    return RawRecord("crm", f"kafka:customers/0/{offset}", value)


def pipeline(folder: Path, formats: PayloadFormats, **source: Any) -> Pipeline:
    config = KafkaSource.model_validate({**CRM, "format": "registry", **source})
    return Pipeline(
        folder,
        sources={"crm": config},
        snapshot=snapshot(specs=[SPEC], declared=[], defaults=UNDETECTED),
        formats=formats,
    )


def test_a_dead_letter_holds_what_arrived_and_passes_when_the_schema_is_there(
    tmp_path: Path, registry: Registry
) -> None:
    formats = PayloadFormats(registry=HttpSchemaRegistry(RegistryLocation(registry.url), QUICK))
    at = pipeline(tmp_path, formats)
    early = record(led(1, customer(7, cents=10**18 + 1)))
    output = at.map(early, record(b"{}", 2))
    assert [dead_letter.reason for dead_letter in output.dead_letters] == ["no_schema", "bad_payload"]
    opened = at.sealer.open(output.dead_letters[0].payload, output.dead_letters[0].id, early.position)
    assert opened == early.value
    registry.register("customers-value", json.dumps(CUSTOMER))
    later = pipeline(
        tmp_path, PayloadFormats(registry=HttpSchemaRegistry(RegistryLocation(registry.url), QUICK))
    )
    later.process([RawRecord("crm", early.position, opened)])
    assert later.profile("customer:7")["balance"] == Decimal("10000000000000000.01")


def test_a_registry_that_is_away_stops_the_micro_batch_and_is_waited_for_once(
    tmp_path: Path, registry: Registry
) -> None:
    number = registry.register("customers-value", json.dumps(CUSTOMER))
    at = pipeline(
        tmp_path, PayloadFormats(registry=HttpSchemaRegistry(RegistryLocation(registry.url), QUICK))
    )
    registry.faults.extend([500] * 20)
    with pytest.raises(SchemaRegistryError):
        at.map(record(led(number, customer(7))), record(led(number, customer(8)), 2))
    assert len(registry.asked) == QUICK.retries + 1
    registry.faults.clear()
    assert at.map(record(led(number, customer(7)))).dead_letters == []


def test_credentials_that_cannot_be_read_stop_the_micro_batch(tmp_path: Path, registry: Registry) -> None:
    number = registry.register("customers-value", json.dumps(CUSTOMER))
    place = RegistryLocation(registry.url, "reader", str(tmp_path / "none"))
    at = pipeline(tmp_path, PayloadFormats(registry=HttpSchemaRegistry(place, QUICK)))
    with pytest.raises(ConfigError, match="none"):
        at.map(record(led(number, customer(7))))


def test_an_erasure_finds_dead_letters_by_what_their_payloads_hold(
    tmp_path: Path, registry: Registry
) -> None:
    number = registry.register("customers-value", json.dumps(CUSTOMER))
    formats = PayloadFormats(registry=HttpSchemaRegistry(RegistryLocation(registry.url), QUICK))
    without_spec = pipeline(tmp_path, formats, type={"const": "unknown"})
    output = without_spec.map(
        record(led(number, customer(7, "mine@example.com")), 1), record(led(number, customer(8)), 2)
    )
    assert [dead_letter.reason for dead_letter in output.dead_letters] == ["no_spec", "no_spec"]
    search = DeadLetterSearch(
        without_spec.sources, snapshot(specs=[]), without_spec.blind_index, without_spec.sealer.open, formats
    )
    found = list(search.find(output.dead_letters, [], ["email:mine@example.com"]))
    assert [each.position for each in found] == ["kafka:customers/0/1"]


def test_files_say_how_payloads_are_written(tmp_path: Path) -> None:
    formats = PayloadFormats({"crm": json.dumps(CUSTOMER).encode()})
    at = pipeline(tmp_path, formats, format="avro", schema_file="customer.avsc")
    at.process([record(customer(7, cents=250)), record(None, 2)])
    assert at.profile("customer:7")["balance"] == 2.5
