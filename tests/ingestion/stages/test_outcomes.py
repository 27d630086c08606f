"""The workers' reports on a micro-batch come whole to the driver and the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from idgraph.model.classification import SensitiveKind
from ingestion.metadata.schema_journal import SchemaJournal
from ingestion.stages import map_output, outcomes
from ingestion.stages.outcomes import StageReport
from tests.retail import Pipeline, attribute, raw, snapshot, spec

CANARY = "kahuna@example.com"


def test_of_schema_changes_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys that are made of ids, millions in a micro-batch, filled the driver. What is not reported is when it is shown again."""
    for module in (outcomes, map_output):
        monkeypatch.setattr(module, "MAX_REPORTED_CHANGES", 7)
    same = spec("orders", operations=({"operation": "shift", "spec": {"*": "&"}},))
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[same], declared=[]))

    def event(number: int) -> dict[str, Any]:
        keys = {f"k{key}": key for key in range(5 * number, 5 * number + 5)}
        return {"_event": {"id": f"e{number}", "ordinal": 1}, "identity": {"email": "p1"}, "x": keys}

    events = [raw(event(number), number) for number in range(3)]
    output = pipeline.map(*events)
    assert output.dead_letters == []
    dropped_changes = 3 * 5 + 1 - 7
    assert (len(output.changes), output.dropped_changes) == (7, dropped_changes)
    found = StageReport(
        changes=output.reported_changes(),
        dropped_changes=output.dropped_changes,
    )
    total = StageReport()
    for _ in range(2):
        total.add(found)
    assert (len(total.changes), total.dropped_changes) == (7, 2 * dropped_changes + 7)
    assert pipeline.map(events[2]).changes.keys() > {(f"x.k{key}", "integer") for key in range(10, 15)}


def test_sights_of_what_is_known_keep_no_new_path_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (outcomes, map_output):
        monkeypatch.setattr(module, "MAX_REPORTED_CHANGES", 2)
    same = spec("orders", operations=({"operation": "shift", "spec": {"*": "&"}},))
    known = [attribute("identity.email"), *(attribute(f"k{key}", "integer") for key in range(5))]
    stage = Pipeline(tmp_path, snapshot=snapshot(specs=[same], declared=known)).map_stage()
    stage._attributes.look_again(86_400)
    keys = {f"k{key}": key for key in range(4)} | {"k4": True, "new": 1}
    event = {"_event": {"id": "e1", "ordinal": 1}, "identity": {"email": "p1"}, **keys}
    (output,) = stage.run([raw(event, 1)])
    found = StageReport(changes=output.reported_changes(), sights=output.sights)
    total = StageReport()
    for _ in range(2):
        total.add(msgspec.json.decode(msgspec.json.encode(found), type=StageReport))
    changes = total.schema_changes()
    assert [(each.path, each.seen) for each in changes[:2]] == [("k4", False), ("new", False)]
    assert {(each.path, each.seen) for each in changes[2:]} == {
        *((f"k{key}", True) for key in range(4)),
        ("identity.email", True),
    }
    assert len(changes) == 2 + 5
    assert output.dropped_changes == 0


def test_a_schema_change_carries_its_strongest_proposal_and_no_value(tmp_path: Path) -> None:
    same = spec("orders", operations=({"operation": "shift", "spec": {"*": "&"}},))
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[same], declared=[]))
    texts = ["hello", f"mail {CANARY}", f"{CANARY} 4111111111111111"]
    events = [
        {"_event": {"id": f"e{number}", "ordinal": 1}, "identity": {"email": "p1"}, "note": text}
        for number, text in enumerate(texts)
    ]
    output = pipeline.map(*(raw(event, number) for number, event in enumerate(events, 1)))
    assert output.dead_letters == []
    report = StageReport(changes=output.reported_changes())
    wire = msgspec.json.encode(report)
    journal = SchemaJournal(tmp_path / "journal")
    journal.append(msgspec.json.decode(wire, type=StageReport).schema_changes())
    assert CANARY.encode() not in wire + journal.path.read_bytes()
    (note,) = [change for change in journal.first(10).changes if change.path == "note"]
    assert note.proposal is not None
    assert note.proposal.kind is SensitiveKind.PAYMENT_CARD
    assert note.first_event.endswith("#1")
