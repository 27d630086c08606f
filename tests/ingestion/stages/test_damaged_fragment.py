"""One fragment whose stored state is damaged hurts only itself, and nothing of it is lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.events import RawRecord
from idgraph.model.index import IndexRules
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.store import FragmentWrite
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from tests.projecting import sweep
from tests.replaying import replay
from tests.retail import Pipeline, persons_of, records, states_of


@pytest.fixture
def given() -> list[RawRecord]:
    return records(40)


def overwrite(pipeline: Pipeline, fragment_id: str, state: bytes) -> bytes:
    """Put other bytes in place of a fragment's state, as a failing disk does; gives what was there."""
    (present,) = pipeline.store.read([fragment_id]).values()
    assert not pipeline.store.write([FragmentWrite(fragment_id, present.version, state, frozenset())])
    return present.state


def nowhere(_: list[SchemaChange]) -> None:
    """Takes schema changes, as a service that is there does."""


def test_its_changes_are_set_aside_and_joined_once_it_is_restored(
    tmp_path: Path, given: list[RawRecord]
) -> None:
    straight = Pipeline(tmp_path)
    straight.process(given)
    straight.process(given[:10])

    pipeline = Pipeline(tmp_path, straight.key_store)
    half = given[::2]
    pipeline.process(half)
    singles = [each.id for each in persons_of(straight.store) if len(each.members) == 1]
    victim = min(pipeline.store.read(singles))
    kept = overwrite(pipeline, victim, b'{"half a sta')
    output = pipeline.process(given)
    assert [failure.fragment_id for failure in output.failed] == [victim]
    assert output.written > 0

    reader = pipeline.reader()
    exported = [profile.id for profile in reader.scan()]
    assert reader.damaged == [victim]
    assert sorted([*exported, victim]) == [profile.id for profile in straight.reader().scan()]

    batch = BatchAttempt("main/0", "attempt")
    with closing(pipeline.resources().dead_letters) as dead_letters:
        written = DeadLetterWriter(pipeline.sealer).of_failures(output.failed, 1, batch)
        dead_letters.put(written)
        assert [dead_letter.reason for dead_letter in written] == [DeadLetterReason.DAMAGED_FRAGMENT]

        def again() -> tuple[int, int]:
            resources = pipeline.resources()
            resources.dead_letters = dead_letters
            report = replay(
                list(dead_letters.scan()),
                pipeline.plan(),
                resources,
                pipeline.snapshot,
                pipeline.sealer.open,
                nowhere,
            )
            return report.replayed, report.still_dead

        assert again() == (0, 1)
        overwrite(pipeline, victim, kept)
        assert again() == (1, 0)
        assert list(dead_letters.scan()) == []
    assert pipeline.export() == straight.export()


def test_two_batches_leave_two_dead_letters(tmp_path: Path, given: list[RawRecord]) -> None:
    pipeline = Pipeline(tmp_path)
    outputs = [states_of(pipeline.map(*part)) for part in (given[:20], given)]
    both = set(outputs[0]) & set(outputs[1])
    (name, *_) = sorted(name for name in both)
    writer = DeadLetterWriter(pipeline.sealer)
    batch = BatchAttempt("main/0", "attempt")

    def dead_letter_id(change: FragmentState) -> str:
        failure = CommitFailure(name, DeadLetterReason.DAMAGED_FRAGMENT, "", change)
        (dead_letter,) = writer.of_failures([failure], 1, batch)
        return dead_letter.id

    ids = {dead_letter_id(each[name]) for each in outputs}
    same = {dead_letter_id(outputs[0][name]) for _ in range(2)}
    assert len(same) == 1
    assert len(ids) == 2 or outputs[0][name].registers == outputs[1][name].registers


def test_the_outbox_goes_past_it(tmp_path: Path, given: list[RawRecord]) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.process(given)
    ids = [fragment.id for fragment in pipeline.store.scan()]
    overwrite(pipeline, ids[0], b"x")
    overwrite(pipeline, ids[1], pipeline.store.read([ids[1]])[ids[1]].state)
    assert [entry.fragment_id for entry in pipeline.store.outbox()] == ids[:2]
    assert sweep(pipeline.store, pipeline.index, IndexRules(lambda _: True)) == 1
    assert [entry.fragment_id for entry in pipeline.store.outbox()] == ids[:1]
