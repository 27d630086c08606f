"""The pattern of the security example over its audit logs: failed log-ins, then one from another country."""

from __future__ import annotations

import json
import time
from pathlib import Path

from idgraph.app.behaviour_documents import read_behaviour
from idgraph.app.demo.example import EXAMPLES
from idgraph.app.settings.document import load
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.events import RawRecord
from idgraph.model.query_language import parse_query
from idgraph.model.specs import SpecDocument
from idgraph.projection.projection import Projection
from tests.retail import CREATED, Pipeline, snapshot

EXAMPLE = EXAMPLES / "security"


def test_failed_logins_then_success_from_another_country_are_found(tmp_path: Path) -> None:
    stated = json.loads((EXAMPLE / "specs" / "audit.json").read_bytes())
    behaviour = read_behaviour(EXAMPLE / "behaviour.json")
    content = {
        "activities": tuple(ActivityDocument(**dict(each), version=1) for each in behaviour.activities),
        "derived_attributes": tuple(
            DerivedDocument(**dict(each), version=1) for each in behaviour.derived_attributes
        ),
        "behaviour_version": 1,
    }
    known = snapshot(1, [SpecDocument(**{**stated, "version": 1, "created": CREATED})], [])
    pipeline = Pipeline(
        tmp_path,
        snapshot=known.model_copy(update=content),
        sources=load(EXAMPLE / "idgraph.toml").sources_by_name(),
        now=time.time,
    )
    records = [
        RawRecord("audit", f"file:{file.name}#{number}", line)
        for file in sorted((EXAMPLE / "data" / "audit").glob("*.jsonl"))
        for number, line in enumerate(file.read_bytes().splitlines(), 1)
    ]
    pipeline.process(records[::-1])
    Projection(pipeline.store, pipeline.index, pipeline.rules).sweep()
    (segment,) = behaviour.segments
    assert segment.q is not None
    (found,) = pipeline.index.search(parse_query([segment.q], lambda _: None)).ids
    (profile,) = (each for each in pipeline.reader().scan() if each.id == found)
    matched = profile.attributes()["behaviour"]["suspiciousLogins"]
    assert matched["last"]["FAILED"] == {"outcome": "failed", "country": "US"}
    assert matched["last"]["OK"] == {"outcome": "ok", "country": "RO"}
    assert matched["last"]["end"] - matched["last"]["begin"] == 300_000
