"""Stored paths with a key for which an event would be set aside today: the rest is sealed, and they are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata, AttributeStatus
from idgraph.model.errors import EventError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults
from merge.fragments import FragmentState
from tests.ingestion.stages.test_map_stage import WHOLE, event, passing
from tests.retail import UNDETECTED, Pipeline, attribute, attributes, snapshot
from tests.sealing import previewed, sealed
from transforms.spec.mapping import CompiledSnapshot

KEY = "bob@example.com"
SHOWN = f"prefs.{paths.escape(KEY)}"
SALARY = attribute("salary", "integer", encryption="protected")
SPECS = [passing(WHOLE)]
PROPOSED = DiscoveryDefaults(detection=DetectionMode.PROPOSE)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Three persons, stored before detection was on and salaries were protected; one with an address as a key."""
    found = Pipeline(tmp_path, snapshot=snapshot(1, specs=SPECS, defaults=UNDETECTED))
    found.process([event(1, prefs={KEY: 1, "deep": {KEY: {"er": 1}}}, salary=10), event(2, salary=20)])
    found.process([event(3, salary=30, prefs={"colour": "red"})])
    return found


def registers(pipeline: Pipeline) -> dict[tuple[str, str], Register]:
    return {
        (stored.id, path): register
        for stored in pipeline.store.scan()
        for path, register in FragmentState.decode(stored.state).registers.items()
    }


def test_a_sensitive_key_stops_nothing_and_is_reported(pipeline: Pipeline) -> None:
    pipeline.snapshot = snapshot(2, specs=SPECS, declared=[*attributes(), SALARY])
    reported = previewed(pipeline)
    done = sealed(pipeline)
    assert (done.looked_at, done.failed, done.values["salary"]) == (3, 0, 3)
    assert (done.readable["path"], reported.readable["path"]) == (1, 1)
    found = registers(pipeline)
    assert {found[at].kind for at in found if at[1] == "salary"} == {Kind.SEALED}
    assert [found[at].kind for at in found if at[1] == SHOWN] == [Kind.PLAIN]


def test_its_value_is_judged_like_any_other(pipeline: Pipeline) -> None:
    above = attribute("prefs", encryption="protected")
    pipeline.snapshot = snapshot(2, specs=SPECS, declared=[*attributes(), above])
    assert sealed(pipeline).values[SHOWN] == 1


ADMIN_SAID = [attribute(SHOWN, "integer"), attribute(f"prefs.deep.{paths.escape(KEY)}.er", "integer")]
DISCOVERED = [each.model_copy(update={"status": AttributeStatus.DISCOVERED}) for each in ADMIN_SAID]


@pytest.mark.parametrize(
    ("known", "defaults", "reported"),
    [
        ([], None, 1),
        (DISCOVERED, None, 1),
        (ADMIN_SAID[:1], None, 1),
        (ADMIN_SAID, None, 0),
        ([], UNDETECTED, 0),
        ([], PROPOSED, 0),
    ],
    ids=["unknown", "discovered", "one of two declared", "declared", "detection off", "proposals only"],
)
def test_what_an_admin_declared_is_a_name(
    known: list[AttributeMetadata], defaults: DiscoveryDefaults | None, reported: int, pipeline: Pipeline
) -> None:
    pipeline.snapshot = snapshot(2, specs=SPECS, declared=[*attributes(), *known], defaults=defaults)
    assert sealed(pipeline).readable["path"] == reported


def test_events_are_set_aside_for_it_after_as_before(pipeline: Pipeline) -> None:
    tree = CompiledSnapshot(snapshot(2, specs=SPECS)).attributes
    origin: Origin = next(iter(registers(pipeline).values())).origin
    tree.policy_of_value(SHOWN, 1)
    tree.policy_of_value("prefs.colour", "red")
    assert tree.shows_in_a_key(SHOWN)
    with pytest.raises(EventError, match="sensitive"):
        tree.leaves({"prefs": {KEY: 1}}, origin)
    assert "prefs.colour" in tree.leaves({"prefs": {"colour": "red"}}, origin).plain


@pytest.mark.parametrize("path", [".".join("a" * 80), "a" * 1025])
def test_a_path_that_is_out_of_bounds_by_now_is_judged(path: str, pipeline: Pipeline) -> None:
    tree = CompiledSnapshot(snapshot(2, specs=SPECS)).attributes
    assert not tree.policy_of_value(path, 1).is_protected
    assert tree.policy_of_value(path, KEY).is_protected
