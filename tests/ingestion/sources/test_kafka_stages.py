"""Events from Kafka through the stages, without a broker: keys in specs, deletions, dead letters and their replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.model.events import RawRecord
from idgraph.model.kafka import KafkaSource
from idgraph.model.specs import SpecDocument
from ingestion.sources.kafka.envelope import frame
from tests.retail import CREATED, UNDETECTED, Pipeline, snapshot

AT = 1_711_000_000_000


def spec(name: str, event_type: str, operations: list[Any], **more: Any) -> SpecDocument:
    return SpecDocument.model_validate(
        {
            "name": name,
            "specification_type": "chain",
            "source": "crm",
            "event_type": event_type,
            "status": "active",
            "operations": operations,
            "identifiers": [{"type": "customer", "path": "_event.customer", "primary": True}],
            "version": 1,
            "created": CREATED,
            **more,
        }
    )


CHANGED = spec(
    "crm-changed",
    "customer",
    [
        {"operation": "shift", "spec": {"*": "&"}},
        {"operation": "modify-overwrite-beta", "spec": {"+_event": {"customer": "^key"}}},
    ],
)
DELETED = spec(
    "crm-deleted",
    "tombstone",
    [
        {"operation": "default", "spec": {"_event": {}}},
        {"operation": "modify-overwrite-beta", "spec": {"+_event": {"customer": "^key"}}},
    ],
    mode="snapshot",
)
CRM = KafkaSource.model_validate(
    {
        "name": "crm",
        "kind": "kafka",
        "topics": ["customers"],
        "type": {"const": "customer"},
        "id": {"header": "id"},
        "ordinal": {"timestamp": True},
    }
)


def record(offset: int, payload: Any, key: str = "7", at: int | None = None) -> RawRecord:
    value = payload if payload is None or isinstance(payload, bytes) else json.dumps(payload).encode()
    framed = frame(key.encode(), [("id", b"e%d" % offset)], AT + offset if at is None else at, value)
    return RawRecord("crm", f"kafka:customers/0/{offset}", framed)


def pipeline(folder: Path, *specs: SpecDocument) -> Pipeline:
    folder.mkdir(exist_ok=True)
    return Pipeline(
        folder, sources={"crm": CRM}, snapshot=snapshot(specs=specs, declared=[], defaults=UNDETECTED)
    )


def test_a_key_names_the_profile_and_a_deletion_takes_back_what_its_source_said(tmp_path: Path) -> None:
    records = [record(1, {"city": "Rome", "plan": "a"}), record(2, {"city": "Oslo"}), record(3, None)]
    alive = pipeline(tmp_path / "alive", CHANGED, DELETED)
    alive.process(records[:2])
    assert alive.profile("customer:7") == {"city": "Oslo", "plan": "a"}
    for number, order in enumerate((records, records[::-1], records * 2)):
        deleted = pipeline(tmp_path / f"deleted{number}", CHANGED, DELETED)
        deleted.process(order)
        assert deleted.profile("customer:7") == {}
    deleted.process([record(4, {"city": "Bari"})])
    assert deleted.profile("customer:7") == {"city": "Bari"}


def test_without_a_spec_for_it_a_deletion_is_skipped_and_nothing_else_is(tmp_path: Path) -> None:
    output = pipeline(tmp_path, CHANGED).map(record(1, {"city": "Rome"}), record(2, None))
    assert (output.events, output.skipped, output.dead_letters) == (2, 1, [])
    output = pipeline(tmp_path, DELETED).map(record(1, {"city": "Rome"}), record(2, None, key=""))
    assert [dead_letter.reason for dead_letter in output.dead_letters] == ["no_spec", "missing_identifier"]


@pytest.mark.parametrize("payload", [b"{", {"city": "Rome"}])
def test_a_dead_letter_holds_key_and_headers_and_is_found_by_its_key(tmp_path: Path, payload: Any) -> None:
    at = pipeline(tmp_path)
    mine, other = record(1, payload, "customer-7001"), record(2, payload, "customer-7002")
    output = at.map(mine, other)
    assert len(output.dead_letters) == 2
    dead_letter = next(each for each in output.dead_letters if each.position == mine.position)
    opened = at.sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position)
    assert opened == mine.value
    search = DeadLetterSearch({"crm": CRM}, snapshot(specs=[CHANGED]), at.blind_index, at.sealer.open)
    found = list(search.find(output.dead_letters, [], ["customer:customer-7001"]))
    assert [(each.position, each.certain) for each in found] == [(mine.position, True)]
    replayed = pipeline(tmp_path, CHANGED).map(RawRecord("crm", dead_letter.position, opened))
    assert [each.reason for each in replayed.dead_letters] == (["not_json"] if payload == b"{" else [])
