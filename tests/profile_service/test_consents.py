"""Consents: given, withdrawn, in any order; hidden and half-said ones."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from idgraph.jobs.export import members
from idgraph.model.events import RawRecord
from idgraph.model.identifiers import Identifier
from idgraph.model.sources import FileSource
from idgraph.model.specs import SpecDocument
from idgraph.model.views import SegmentDocument
from profile_service.consents import Consent, consent_of, consents_of
from tests.retail import CREATED, UNDETECTED, Pipeline, attribute, raw, snapshot

PAGE = (Path(__file__).parents[2] / "docs" / "rights.md").read_text(encoding="utf-8")
WRITTEN = json.loads(PAGE.partition("```json\n")[2].partition("```")[0])
SPEC = SpecDocument(**WRITTEN, version=1, created=CREATED)
SOURCE = FileSource(name="consents", path=Path("consents"))
ANN = Identifier("user_id", "ann")


def decided(at: int, status: str, purpose: str = "marketing", **said: Any) -> RawRecord:
    event: dict[str, Any] = {"id": f"e{at}", "at": at, "identifiers": {"user_id": "ann"}}
    event["consents"] = {purpose: {"status": status, **said}}
    return raw(event, at, "consents")


def made(folder: Path, *events: RawRecord, **levels: int) -> Pipeline:
    folder.mkdir(exist_ok=True)
    declared = [
        attribute(path.replace("_", "."), authorization_level=level) for path, level in levels.items()
    ]
    known = snapshot(specs=[SPEC], declared=declared, defaults=UNDETECTED)
    pipeline = Pipeline(folder, snapshot=known, sources={"consents": SOURCE})
    for event in events:
        pipeline.process([event])
    return pipeline


def test_the_latest_decision_counts_in_whichever_order_events_come(tmp_path: Path) -> None:
    events = [
        decided(1, "given", source="shop", time="2024-01-01"),
        decided(2, "withdrawn", source="phone", time="2024-01-02"),
        decided(3, "given"),
        decided(1, "withdrawn", "research"),
    ]
    for number, order in enumerate(permutations(events)):
        (profile,) = made(tmp_path / str(number), *order).reader().lookup(ANN)
        # Source and time of an older decision say nothing of this one.
        assert list(consents_of(profile)) == [
            Consent("marketing", "given", "consents", None, "e3", 3),
            Consent("research", "withdrawn", "consents", None, "e1", 1),
        ]
        assert consent_of(profile, "profiling") is None


def test_source_and_time_are_those_of_the_decision(tmp_path: Path) -> None:
    events = decided(1, "given"), decided(2, "withdrawn", source="phone", time="2024-01-02")
    (profile,) = made(tmp_path, *events).reader().lookup(ANN)
    found = consent_of(profile, "marketing")
    assert found == Consent("marketing", "withdrawn", "phone", "2024-01-02", "e2", 2)
    assert not found.is_given


def test_a_deleted_status_is_no_consent(tmp_path: Path) -> None:
    pipeline = made(tmp_path, decided(1, "given"), decided(2, None))  # type: ignore[arg-type]
    (profile,) = pipeline.reader().lookup(ANN)
    assert consent_of(profile, "marketing") is None


@pytest.mark.parametrize("status", ["Given", "", "yes", True, 1, ["given"]])
def test_nothing_but_given_gives(tmp_path: Path, status: Any) -> None:
    (profile,) = made(tmp_path, decided(1, status)).reader().lookup(ANN)
    found = consent_of(profile, "marketing")
    assert found is not None
    assert not found.is_given


def test_a_caller_who_may_not_see_a_consent_has_none(tmp_path: Path) -> None:
    pipeline = made(tmp_path, decided(1, "given"), consents_marketing=50)
    reader = pipeline.reader()
    (hidden,), (seen,) = (reader.with_clearance(level).lookup(ANN) for level in (49, 50))
    assert consent_of(hidden, "marketing") is None
    assert consent_of(seen, "marketing") is not None


def test_an_export_of_a_segment_asks_the_store_for_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = made(tmp_path, decided(1, "given"), consents_marketing_status=50)
    segments = (
        SegmentDocument(name="buyers", query=[], version=1, purpose="marketing"),
        SegmentDocument(name="all", query=[], version=1),
    )
    pipeline.snapshot = pipeline.snapshot.model_copy(update={"segments": segments})
    reader = pipeline.reader().with_clearance(0)
    (exported,) = members(reader, "buyers", reveal=False)
    assert list(consents_of(exported)) == [], "what the clearance hides is not shown"
    # The index does not follow.
    monkeypatch.setattr(pipeline, "project", lambda: None)
    pipeline.process([decided(2, "withdrawn")])
    reader = pipeline.reader().with_clearance(0)
    assert len(reader.members(segments[0].segment(), 10).profiles) == 1
    assert list(members(reader, "buyers", reveal=False)) == []
    assert len(list(members(reader, "all", reveal=False))) == 1
