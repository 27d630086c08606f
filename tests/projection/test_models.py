"""A model's value in look-ups, exports, features and the index; and a model that is missing, and then arrives."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from weakref import ref

import pyarrow as pa
import pytest

from idgraph.jobs.features.columns import Features
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import Query, Range
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.projection.behaviour import _COMPILED
from idgraph.projection.projection import Projection
from idgraph.snapshot_file import SnapshotFile, kept_snapshot
from ingestion.spark.sent_snapshots import SnapshotSender
from profile_service.reader import Profile, ProfileReader
from tests.projection.test_behaviour import COUNT, NOW_MS, ORDERS, SUM, derived, with_behaviour
from tests.retail import Pipeline, attribute
from tests.transforms.behaviour.onnx_models import digest, linear

MODEL = linear([10, 1])
"""Ten times the orders, and the revenue, and a half."""
SCORE = derived(
    "behaviour.score",
    model={"digest": digest(MODEL), "inputs": [{"path": COUNT.path}, {"path": SUM.path}], "digits": 1},
)
PERSON = Identifier("email", "p1@example.com")


def with_model(content: bytes | None = MODEL, version: int = 1) -> MetadataSnapshot:
    known = with_behaviour(definitions=(COUNT, SUM, SCORE), version=version)
    kinds = tuple(attribute(each.path, "number") for each in (COUNT, SUM, SCORE))
    known = known.model_copy(update={"attributes": (*known.attributes, *kinds)})
    return known.with_models({digest(MODEL): content}.get)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    found = Pipeline(tmp_path, snapshot=with_model())
    # Not projected as of the real time.
    outputs = list(found.map_stage().run(ORDERS))
    found.commit_stage().run(each for output in outputs for each in output.encoded())
    return found


def looked_up(pipeline: Pipeline) -> tuple[Profile, ProfileReader]:
    reader = pipeline.reader()
    reader.now_ms = lambda: NOW_MS
    (profile,) = reader.lookup(PERSON)
    return profile, reader


def project(pipeline: Pipeline) -> None:
    Projection(pipeline.store, pipeline.index, pipeline.rules, now_ms=lambda: NOW_MS).sweep()


def found(pipeline: Pipeline) -> list[str]:
    return pipeline.index.search(Query((Range(SCORE.path, lower=35, upper=36),))).ids


def test_readers_the_index_and_features_have_the_same_value(pipeline: Pipeline) -> None:
    profile, reader = looked_up(pipeline)
    assert profile.get(SCORE.path) == 35.8
    made = Features(reader, [SCORE.path]).columns(["email:p1@example.com"], [NOW_MS])
    assert made[SCORE.path].to_pylist() == [35.8]
    assert made.schema.field(SCORE.path).type == pa.float64()
    project(pipeline)
    assert found(pipeline) == [profile.id]


def test_the_value_says_which_model_gave_it(pipeline: Pipeline) -> None:
    profile, _ = looked_up(pipeline)
    origin = profile.canonical(provenance=True)["provenance"][SCORE.path]
    assert origin == {
        "source": f"model:{digest(MODEL)}",
        "priority": 0,
        "event": "",
        "ordinal": 0,
        "spec": "derived:behaviour-score",
        "spec_version": 1,
        "entries": 0,
        "complete": True,
    }


def test_a_missing_model_hurts_only_its_attribute_until_it_arrives(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.snapshot = with_model(None, 2)
    with caplog.at_level(logging.WARNING):
        profile, reader = looked_up(pipeline)
    assert "derived attribute behaviour-score has no values: /model/digest: there is no model" in caplog.text
    assert (profile.get(COUNT.path), profile.get(SCORE.path)) == (2, None)
    expected = {"underived": {SCORE.path: "there is no model with this digest"}}
    assert reader.take_incomplete() == expected
    assert reader.take_incomplete() == {}
    project(pipeline)
    assert found(pipeline) == []
    pipeline.snapshot = with_model(MODEL, 3)
    profile, reader = looked_up(pipeline)
    assert (profile.get(SCORE.path), reader.take_incomplete()) == (35.8, {})
    project(pipeline)
    assert found(pipeline) == [profile.id]


def test_without_the_extra_there_is_no_value(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    other = linear([1, 1])
    changed = SCORE.model_copy(
        update={"model": SCORE.model.model_copy(update={"digest": digest(other)}) if SCORE.model else None}
    )
    known = with_behaviour(definitions=(COUNT, SUM, changed), version=2)
    pipeline.snapshot = known.with_models({digest(other): other}.get)
    profile, reader = looked_up(pipeline)
    assert (profile.get(COUNT.path), profile.get(SCORE.path)) == (2, None)
    [problem] = reader.take_incomplete()["underived"].values()
    assert problem == "models need onnxruntime: pip install 'idgraph[models]'"


def test_a_snapshot_carries_its_models_to_files_and_workers(tmp_path: Path) -> None:
    pinned = PinnedSnapshot('"1"', with_model())
    SnapshotFile(tmp_path / "snapshot.json").keep(pinned)
    kept = kept_snapshot(tmp_path / "snapshot.json")
    assert kept == pinned

    class Broadcast:
        def __init__(self, value: bytes) -> None:
            self.value = value

    sent = SnapshotSender(Broadcast).sent(pinned)
    assert sent.snapshot().models == {digest(MODEL): MODEL}


def test_a_snapshot_names_its_models_once() -> None:
    asked: list[str] = []

    def model(name: str) -> bytes | None:
        asked.append(name)
        return None

    known = with_behaviour(definitions=(SCORE, derived("other", model=SCORE.model), COUNT))
    assert known.with_models(model) == known
    assert asked == [digest(MODEL)]
    assert "models" not in known.model_dump()


def test_a_model_that_no_snapshot_names_leaves_memory(pipeline: Pipeline) -> None:
    rules = [pipeline.rules()]
    projection = Projection(pipeline.store, pipeline.index, lambda: rules[-1], now_ms=lambda: NOW_MS)
    projection.sweep()
    compiled = ref(_COMPILED[SCORE.model_dump_json(), digest(MODEL)])
    pipeline.snapshot = with_behaviour(definitions=(COUNT, SUM), version=2)
    rules[:] = [pipeline.rules()]
    projection.sweep()
    gc.collect()
    assert compiled() is None
