"""Dead letters of files of one name in two places: of a flow's inbox, and of an archive that a backfill takes."""

from __future__ import annotations

import pytest

from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetter, DeadLetterReason
from ingestion.sources.files.lines import read_records
from ingestion.spark.workers import WorkerResources
from ingestion.stages.dead_letters import BatchAttempt
from tests.replaying import ReplayReport, replay
from tests.retail import Pipeline, order, snapshot, spec

INBOX = BatchAttempt("main/q/0", "first")
ARCHIVE = BatchAttempt("backfill-orders-1/q/0", "first")
MAX_BYTES = 4000


def taken(pipeline: Pipeline, batch: BatchAttempt, content: bytes | None) -> list[DeadLetter]:
    """The dead letters of one file, which is gone where there is no content."""
    folder = pipeline.folder / batch.batch.partition("/")[0] / "shop"
    folder.mkdir(parents=True, exist_ok=True)
    if content is not None:
        (folder / "part-1.jsonl").write_bytes(content)
    pipeline.batch = batch
    return pipeline.map(*read_records(folder / "part-1.jsonl", "orders", MAX_BYTES, folder)).dead_letters


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ((b'{"order_id":"LIVE"}\n', b'{"order_id":"OLD"}\n'), DeadLetterReason.MISSING_ORDINAL),
        ((b"live", b"old"), DeadLetterReason.NOT_JSON),
        # Of these there is nothing, or only a part, which is the same.
        ((None, None), DeadLetterReason.CORRUPT_SOURCE),
        ((b"x" * MAX_BYTES + b"live", b"x" * MAX_BYTES + b"old"), DeadLetterReason.TOO_LARGE),
    ],
)
def test_each_of_two_files_of_one_name_leaves_a_dead_letter(
    pipeline: Pipeline,
    resources: WorkerResources,
    contents: tuple[bytes | None, bytes | None],
    reason: DeadLetterReason,
) -> None:
    """Found by review: the one replaced the other, and with it an event was lost."""
    inbox, archive = taken(pipeline, INBOX, contents[0]), taken(pipeline, ARCHIVE, contents[1])
    dead_letters = [*inbox, *archive]
    assert [each.reason for each in dead_letters] == [reason] * 2
    assert len({each.position for each in dead_letters}) == 1
    assert str(pipeline.folder) not in repr(dead_letters)
    for each in (inbox, archive, inbox):
        resources.dead_letters.put(each)
    assert sorted(resources.dead_letters.scan()) == sorted(dead_letters)
    # The same file again leaves nothing again.
    again = taken(pipeline, INBOX._replace(attempt="second"), contents[0])
    assert [each.id for each in again] == [each.id for each in inbox]
    # Another attempt of the one takes nothing of the other.
    resources.dead_letters.settle_batch(ARCHIVE.batch, "second")
    assert list(resources.dead_letters.scan()) == inbox


def replayed(pipeline: Pipeline, resources: WorkerResources) -> ReplayReport:
    dead_letters = list(resources.dead_letters.scan())
    return replay(
        dead_letters, pipeline.plan(), resources, pipeline.snapshot, pipeline.sealer.open, lambda _: None
    )


def test_both_are_replayed(pipeline: Pipeline, resources: WorkerResources) -> None:
    pipeline.snapshot = snapshot(specs=[spec("segment")])
    contents = [order(customer, customer).value for customer in (1, 2)]
    for batch, content in zip((INBOX, ARCHIVE), contents, strict=True):
        resources.dead_letters.put(taken(pipeline, batch, content))
    before = {each.id for each in resources.dead_letters.scan()}
    assert replayed(pipeline, resources) == ReplayReport(still_dead=2)
    assert {each.id for each in resources.dead_letters.scan()} == before
    pipeline.snapshot = snapshot(version=2)
    assert replayed(pipeline, resources) == ReplayReport(replayed=2)
    assert resources.dead_letters.counts() == {}
    other = Pipeline(pipeline.folder)
    other.process(order(customer, customer) for customer in (1, 2))
    assert [each.id for each in pipeline.store.scan()] == [each.id for each in other.store.scan()]


def test_a_dead_letter_of_an_older_id_is_dropped_by_it(
    pipeline: Pipeline, resources: WorkerResources
) -> None:
    (dead_letter,) = taken(pipeline, INBOX, canonical.encode({"order_id": "R1"}))
    opened = pipeline.sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position)
    old = dead_letter._replace(
        id="older", payload=pipeline.sealer.seal(opened, "older", dead_letter.position)
    )
    resources.dead_letters.put([old])
    assert replayed(pipeline, resources) == ReplayReport(still_dead=1)
    assert [each.id for each in resources.dead_letters.scan()] == [dead_letter.id]
