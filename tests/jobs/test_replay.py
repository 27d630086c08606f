"""Giving dead letters through the stages again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from idgraph.model.dead_letters import COMMIT, FRAGMENT, DeadLetter, DeadLetterReason
from idgraph.model.errors import KeyProviderError, MetadataError, StoreError
from idgraph.model.events import RawRecord
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import FragmentWrite
from ingestion.sources.files.lines import DamagedRecord
from ingestion.spark.workers import WorkerResources
from ingestion.stages.dead_letters import DeadLetterWriter
from merge import codec
from tests.replaying import ReplayReport, replay
from tests.retail import Pipeline, order, raw, records, snapshot, spec

Reason = DeadLetterReason


def set_aside(
    pipeline: Pipeline, resources: WorkerResources, *given: RawRecord | DamagedRecord
) -> list[DeadLetter]:
    dead_letters = pipeline.map(*given).dead_letters
    resources.dead_letters.put(dead_letters)
    return dead_letters


def nowhere(_: list[SchemaChange]) -> None:
    """Takes schema changes, as a service that is there does."""


def replayed(
    pipeline: Pipeline,
    resources: WorkerResources,
    under: MetadataSnapshot | None = None,
    send: Callable[[list[SchemaChange]], None] = nowhere,
) -> ReplayReport:
    dead_letters = list(resources.dead_letters.scan())
    return replay(
        dead_letters, pipeline.plan(), resources, under or pipeline.snapshot, pipeline.sealer.open, send
    )


def only(*names: str) -> MetadataSnapshot:
    return snapshot(specs=[spec(name) for name in names])


def test_a_mended_spec_lets_dead_letters_pass_as_if_nothing_had_happened(
    pipeline: Pipeline, resources: WorkerResources, tmp_path: Path
) -> None:
    given = records(20)
    pipeline.snapshot = only("segment", "amplitude")
    pipeline.process(given)
    orders = [record for record in given if record.source == "orders"]
    assert [dead_letter.reason for dead_letter in set_aside(pipeline, resources, *orders)] == [
        Reason.NO_SPEC
    ] * 5

    pipeline.snapshot = snapshot(version=2)
    sent: list[SchemaChange] = []
    report = replayed(pipeline, resources, send=sent.extend)

    assert (report.replayed, report.still_dead, report.partial, report.unreadable) == (5, 0, 0, 0)
    assert resources.dead_letters.counts() == {}
    assert "orders.last.total" in {change.path for change in sent}
    straight = Pipeline(tmp_path, pipeline.key_store)
    straight.process(given)
    assert pipeline.export() == straight.export()
    assert pipeline.store.outbox() == []


def test_what_is_still_bad_stays_with_the_reason_of_now(
    pipeline: Pipeline, resources: WorkerResources
) -> None:
    pipeline.snapshot = only("segment")
    set_aside(pipeline, resources, order(1, 1), order(2, 2, order_id=None))
    pipeline.snapshot = snapshot(version=2)
    report = replayed(pipeline, resources)
    assert (report.replayed, report.still_dead) == (1, 1)
    (dead_letter,) = resources.dead_letters.scan()
    assert (dead_letter.reason, dead_letter.position, dead_letter.snapshot_version) == (
        Reason.MISSING_ID,
        "file:orders/x.jsonl#2",
        2,
    )
    assert replayed(pipeline, resources).still_dead == 1
    assert resources.dead_letters.counts() == {"missing_id": 1}


def test_dead_letters_of_damaged_files_are_left_alone(pipeline: Pipeline, resources: WorkerResources) -> None:
    good = order(1, 1)
    set_aside(
        pipeline,
        resources,
        DamagedRecord(good, Reason.CORRUPT_SOURCE, "truncated"),
        DamagedRecord(order(2, 2), Reason.TOO_LARGE, "too large"),
    )
    report = replayed(pipeline, resources)
    assert (report.partial, report.replayed) == (2, 0)
    assert sum(resources.dead_letters.counts().values()) == 2
    assert pipeline.store.count() == 0


def test_dead_letters_of_a_source_that_is_no_longer_configured_are_left_alone(
    pipeline: Pipeline, resources: WorkerResources
) -> None:
    set_aside(pipeline, resources, order(1, 1, order_id=None))
    del pipeline.sources["orders"]
    assert replayed(pipeline, resources).partial == 1
    assert sum(resources.dead_letters.counts().values()) == 1


def test_a_dead_letter_under_another_keyring_is_left_alone(
    pipeline: Pipeline, resources: WorkerResources, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Pipeline(tmp_path / "other", snapshot=only("segment"))
    resources.dead_letters.put(stranger.map(order(1, 1)).dead_letters)
    report = replayed(pipeline, resources)
    assert (report.unreadable, report.replayed) == (1, 0)
    assert sum(resources.dead_letters.counts().values()) == 1


def test_replaying_twice_is_harmless(pipeline: Pipeline, resources: WorkerResources) -> None:
    pipeline.snapshot = only("segment")
    dead_letters = set_aside(pipeline, resources, order(1, 1))
    pipeline.snapshot = snapshot()
    replayed(pipeline, resources)
    before, outcome = pipeline.export(), resources.dead_letters.counts()
    resources.dead_letters.put(dead_letters)
    assert replayed(pipeline, resources).replayed == 1
    assert (pipeline.export(), resources.dead_letters.counts()) == (before, outcome)


def test_two_dead_letters_of_one_record_both_leave(pipeline: Pipeline, resources: WorkerResources) -> None:
    pipeline.snapshot = only("segment")
    set_aside(pipeline, resources, order(1, 1))
    pipeline.snapshot = snapshot(
        specs=[spec("orders").model_copy(update={"operations": [{"operation": "none"}]})]
    )
    set_aside(pipeline, resources, order(1, 1))
    assert len(list(resources.dead_letters.scan())) == 2
    pipeline.snapshot = snapshot()
    assert replayed(pipeline, resources).replayed == 2
    assert (resources.dead_letters.counts(), pipeline.store.count()) == ({}, 1)


def test_an_event_that_now_maps_to_nothing_leaves_the_list(
    pipeline: Pipeline, resources: WorkerResources
) -> None:
    set_aside(pipeline, resources, order(1, 1, order_id=None))
    nothing = spec(
        "orders", operations=[{"operation": "shift", "spec": {"none": "x"}}], specification_type="jolt"
    )
    assert replayed(pipeline, resources, snapshot(specs=[nothing])).replayed == 1
    assert resources.dead_letters.counts() == {}


def test_a_store_that_fails_half_way_loses_no_dead_letter(
    pipeline: Pipeline, resources: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.snapshot = only("segment")
    set_aside(pipeline, resources, order(1, 1), order(2, 2))
    pipeline.snapshot = snapshot()

    def away(*_: object) -> set[str]:
        raise StoreError("away")

    with monkeypatch.context() as patched:
        patched.setattr(pipeline.store, "write", away)
        with pytest.raises(StoreError):
            replayed(pipeline, resources)
    assert resources.dead_letters.counts() == {"no_spec": 2}
    assert replayed(pipeline, resources).replayed == 2


def test_dead_letters_stay_until_the_schema_changes_they_bring_are_taken(
    pipeline: Pipeline, resources: WorkerResources
) -> None:
    pipeline.snapshot = only("segment")
    set_aside(pipeline, resources, order(1, 1), order(2, 2))
    pipeline.snapshot = snapshot()

    def away(_: list[SchemaChange]) -> None:
        raise MetadataError("away")

    with pytest.raises(MetadataError):
        replayed(pipeline, resources, send=away)
    assert resources.dead_letters.counts() == {"no_spec": 2}
    sent: list[SchemaChange] = []
    assert replayed(pipeline, resources, send=sent.extend).replayed == 2
    assert "orders.last.total" in {change.path for change in sent}
    assert resources.dead_letters.counts() == {}


def test_records_of_a_damaged_fragment_stay_as_its_changes(
    pipeline: Pipeline, resources: WorkerResources, tmp_path: Path
) -> None:
    pipeline.process([order(1, 1)])
    (whole,) = pipeline.store.scan()
    pipeline.store.write([FragmentWrite(whole.id, whole.version, b"x", frozenset())])
    pipeline.snapshot = only("segment")
    later = order(1, 2, order_id="R9", created_at="2024-03-02T00:00:00Z")
    set_aside(pipeline, resources, later)
    pipeline.snapshot = snapshot()

    assert replayed(pipeline, resources).still_dead == 1

    assert resources.dead_letters.counts() == {"damaged_fragment": 1}
    (damaged,) = pipeline.store.scan()
    pipeline.store.write([FragmentWrite(whole.id, damaged.version, whole.state, frozenset())])
    assert replayed(pipeline, resources).still_dead == 0
    straight = Pipeline(tmp_path, pipeline.key_store)
    straight.process([order(1, 1), later])
    assert pipeline.export() == straight.export()


@pytest.mark.parametrize(
    "held", [b"", b"damaged", codec.framed(b"[]", b"\x7f")], ids=["empty", "damaged", "later_format"]
)
def test_a_dead_letter_whose_changes_cannot_be_read_does_not_end_the_replay(
    held: bytes, pipeline: Pipeline, resources: WorkerResources
) -> None:
    pipeline.process([order(1, 1)])
    (whole,) = pipeline.store.scan()
    pipeline.store.write([FragmentWrite(whole.id, whole.version, b"x", frozenset())])
    later = order(1, 2, order_id="R9", created_at="2024-03-02T00:00:00Z")
    failures = pipeline.process([later]).failed
    writer, reason = DeadLetterWriter(pipeline.sealer), Reason.DAMAGED_FRAGMENT
    record = RawRecord("", FRAGMENT + whole.id, held)
    unreadable = writer.dead_letter(record, COMMIT, reason, "", None, 1, pipeline.batch)
    resources.dead_letters.put([unreadable, *writer.of_failures(failures, 1, pipeline.batch)])
    (damaged,) = pipeline.store.scan()
    pipeline.store.write([FragmentWrite(whole.id, damaged.version, whole.state, frozenset())])

    report = replayed(pipeline, resources)

    assert (report.replayed, report.still_dead, report.unreadable) == (1, 0, 1)
    assert [each.id for each in resources.dead_letters.scan()] == [unreadable.id]


def test_keys_that_are_away_make_key_dead_letters_and_later_none(
    pipeline: Pipeline, resources: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> dict[str, object]:
        raise KeyProviderError("the provider is away")

    with monkeypatch.context() as patched:
        patched.setattr(pipeline.data_keys, "fetch", lambda *_, **__: away())
        set_aside(pipeline, resources, order(1, 1))
    assert resources.dead_letters.counts() == {"key_unavailable": 1}
    assert replayed(pipeline, resources).replayed == 1
    assert resources.dead_letters.counts() == {}


def test_more_dead_letters_than_are_taken_at_once(
    pipeline: Pipeline, resources: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.jobs.replay.DEAD_LETTERS_AT_ONCE", 3)
    set_aside(pipeline, resources, *(raw(b"{", line) for line in range(4)))
    pipeline.snapshot = only("segment")
    set_aside(pipeline, resources, *(order(number, 10 + number) for number in range(4)))
    pipeline.snapshot = snapshot()
    report = replayed(pipeline, resources)
    assert (report.replayed, report.still_dead) == (4, 4)
    assert resources.dead_letters.counts() == {"not_json": 4}


def test_heavy_dead_letters_are_replayed_a_few_at_a_time(
    pipeline: Pipeline, resources: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand dead letters of a megabyte, sealed and opened, would be gigabytes."""
    monkeypatch.setattr("idgraph.jobs.replay.DEAD_LETTER_BYTES_AT_ONCE", 100_000)
    pipeline.snapshot = only("segment")
    sizes = [*(20_000 for _ in range(12)), 150_000, 20_000]
    set_aside(
        pipeline,
        resources,
        *(order(line, line, note="x" * size) for line, size in enumerate(sizes, start=1)),
    )
    pipeline.snapshot = snapshot()
    held: dict[str, int] = {}
    held_at_once: list[list[int]] = []
    drop = resources.dead_letters.drop

    def read() -> Iterator[DeadLetter]:
        for dead_letter in list(resources.dead_letters.scan()):
            held[dead_letter.id] = len(dead_letter.payload)
            yield dead_letter

    def dropped(ids: Sequence[str]) -> int:
        if ids:
            # But for the first of the next slice.
            held_at_once.append([held.pop(each) for each in ids])
            assert len(held) <= 1
        return drop(ids)

    monkeypatch.setattr(resources.dead_letters, "drop", dropped)
    report = replay(read(), pipeline.plan(), resources, pipeline.snapshot, pipeline.sealer.open, nowhere)
    assert (report.replayed, resources.dead_letters.counts(), held) == (14, {}, {})
    assert all(len(some) == 1 or sum(some) <= 100_000 for some in held_at_once)
    assert 4 <= len(held_at_once) <= 6
