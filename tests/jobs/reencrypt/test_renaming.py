"""Names that policy protects after they were stored: what is renamed, and what stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.jobs.erase.erasure import Erased, Erasure
from idgraph.model.dead_letters import DeadLetter
from idgraph.model.pins import PinRecord
from idgraph.model.queries import Query, Term
from idgraph.model.specs import IdentifierPlace, SpecDocument
from idgraph.model.store import FragmentWrite
from idgraph.model.tombstones import NO_EPOCH
from ingestion.stages.dead_letters import DeadLetterWriter
from merge import codec
from merge.fragments import FragmentState
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.tombstone_file import TombstoneFile
from tests.replaying import replay
from tests.retail import NOW, UNDETECTED, Pipeline, attribute, attributes, order, raw, records, snapshot, spec
from tests.sealing import previewed, sealed
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.renamed_orders import AFTER, BEFORE, OTHER, PLAIN, hashed, later
from tests.support.stored_orders import beside, from_the_start, states, stored_orders
from transforms.privacy.protected_names import TombstoneNames


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return stored_orders(tmp_path, BEFORE, AFTER)


def test_a_fragment_goes_to_its_new_name_with_all_there_is_of_it(pipeline: Pipeline) -> None:
    revealed = sorted(pipeline.export(reveal=True).split(b"\n"))
    reported = previewed(pipeline)
    assert PLAIN in states(pipeline)
    done = sealed(pipeline)
    assert (done.renamed, done.fragments, done.failed) == ({"email": 2}, 2, 0)
    assert (reported.renamed, reported.fragments) == (done.renamed, done.fragments)
    assert done.values["identity.email"] == 2
    assert states(pipeline) == from_the_start(pipeline, AFTER)
    assert sorted(pipeline.export(reveal=True).split(b"\n")) == revealed, (
        "an answer had shown the new names before"
    )
    assert pipeline.store.withdrawn() == {}
    assert pipeline.store.outbox() == []
    assert pipeline.key_store.get([PLAIN]) == {}
    assert pipeline.store.find(PLAIN) == []
    assert pipeline.index.versions([PLAIN, hashed(pipeline)]).keys() == {hashed(pipeline)}
    assert pipeline.index.count(Query((Term("address.shipping.city", "Springfield"),))) == 2
    assert sealed(pipeline).fragments == 0


def test_decisions_on_its_identifiers_are_renamed(pipeline: Pipeline) -> None:
    pin = PinRecord(PLAIN, OTHER, 1, "always", "jo", "one household")
    pipeline.store.add_pins([pin])
    pipeline.store.enqueue([PLAIN, OTHER])
    pipeline.project()
    joined = pipeline.export(reveal=True)
    sealed(pipeline)
    low, high = sorted((hashed(pipeline), hashed(pipeline, OTHER)))
    assert list(pipeline.store.pins()) == [pin._replace(low=low, high=high)]
    assert pipeline.export(reveal=True) == joined
    (person,) = pipeline.index.search(Query()).ids
    assert person in (low, high)


def test_what_is_there_under_the_new_name_is_joined(pipeline: Pipeline) -> None:
    pipeline.process([later()])
    assert {PLAIN, hashed(pipeline)} <= set(states(pipeline))
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, AFTER, later())


def test_an_old_name_that_comes_late_is_moved_by_the_next_run(pipeline: Pipeline) -> None:
    flow = beside(pipeline, BEFORE)
    flow.data_keys.fetch([PLAIN], create=False)
    sealed(pipeline)
    flow.process([later()])
    assert PLAIN in states(pipeline)
    assert pipeline.index.versions([PLAIN]).keys() == {PLAIN}, (
        "its version continues behind the one that was withdrawn"
    )
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, AFTER, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_a_value_that_cannot_be_opened_keeps_its_fragment_and_the_rest_is_sealed(pipeline: Pipeline) -> None:
    pipeline.data_keys.erase([PLAIN])
    done = sealed(pipeline)
    assert (done.failed, done.named) == (1, [hashed(pipeline)])
    assert done.values["identity.email"] == 2
    assert set(states(pipeline)) == {PLAIN, hashed(pipeline, OTHER)}
    (profile, _) = pipeline.reader().scan()
    assert "@" not in str(profile.canonical(provenance=True)), "answers hide the name all the same"


def test_a_damaged_fragment_under_the_new_name_holds_the_old_one(pipeline: Pipeline) -> None:
    name = hashed(pipeline)
    pipeline.store.write([FragmentWrite(name, 0, b"damaged", frozenset())])
    done = sealed(pipeline)
    assert done.failed == 2, "the damaged one, and the one that would be joined to it"
    assert PLAIN in states(pipeline)


def test_other_names_change_in_place(tmp_path: Path) -> None:
    opened = [each for each in attributes() if each.path == "identity.email"]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(1, declared=opened, defaults=UNDETECTED))
    pipeline.process(records(80))
    before = set(states(pipeline))
    closed = snapshot(2, declared=[*attributes(), attribute("identity.deviceId", encryption="protected")])
    expected = Pipeline(tmp_path, pipeline.key_store, snapshot=closed)
    expected.process(records(80))
    pipeline.snapshot = closed
    done = sealed(pipeline)
    assert done.renamed["device_id"] > 0
    assert states(pipeline) == states(expected)
    assert before & set(states(pipeline)), "fragments with another primary identifier stay where they are"
    for name in states(pipeline):
        assert pipeline.store.identifiers(name) == expected.store.identifiers(name)


def ticket() -> SpecDocument:
    return spec(
        "orders",
        operations=({"operation": "shift", "spec": {"*": "&"}},),
        id="ticket",
        identifiers=(IdentifierPlace(type="person", path="who", primary=True),),
        mode="snapshot",
        scope="",
    )


def test_ids_of_events_are_hashed_where_they_stand(tmp_path: Path) -> None:
    given = [
        raw({"_event": {"ordinal": n}, "ticket": f"Ticket.{n}", "who": "p1", f"a{n}": n}, n) for n in (1, 2)
    ]
    open_one = attribute("a1", encryption="protected")
    pipeline = Pipeline(tmp_path, snapshot=snapshot(1, [ticket()], [open_one], UNDETECTED))
    pipeline.process(given)
    assert sealed(pipeline).renamed == {}
    closed = [open_one, attribute("ticket", encryption="protected")]
    pipeline.snapshot = snapshot(2, [ticket()], closed)
    assert sealed(pipeline).renamed == {"event": 1}
    expected = Pipeline(tmp_path, pipeline.key_store, snapshot=pipeline.snapshot)
    expected.process(given)
    assert states(pipeline) == states(expected)
    # A point stands in no hash and in no sealed value; two letters of an alphabet of 64 may.
    assert b"Ticket.1" not in b"".join(states(pipeline).values())


def test_changes_that_waited_for_a_damaged_fragment_go_to_the_new_name(pipeline: Pipeline) -> None:
    (present,) = pipeline.store.read([PLAIN]).values()
    pipeline.store.write([FragmentWrite(PLAIN, present.version, b"damaged", frozenset())])
    flow = beside(pipeline, BEFORE)
    dead_letters = DeadLetterWriter(flow.sealer).of_failures(flow.process([later()]).failed, 1, flow.batch)
    assert len(dead_letters) == 1
    resources = pipeline.resources()
    resources.dead_letters.put(dead_letters)
    pipeline.store.write([FragmentWrite(PLAIN, present.version + 1, present.state, frozenset())])
    report = replay(dead_letters, pipeline.plan(), resources, AFTER, pipeline.sealer.open, lambda _: None)
    resources.dead_letters.close()
    assert (report.replayed, report.still_dead) == (1, 0)
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, AFTER, later())
    assert pipeline.store.tombstones([PLAIN])[PLAIN].until == NO_EPOCH


def test_a_dead_letter_of_a_damaged_fragment_is_renamed_with_what_it_holds(pipeline: Pipeline) -> None:
    (present,) = pipeline.store.read([PLAIN]).values()
    pipeline.store.write([FragmentWrite(PLAIN, present.version, b"damaged", frozenset())])
    flow = beside(pipeline, BEFORE)
    dead_letters = DeadLetterWriter(flow.sealer).of_failures(flow.process([later()]).failed, 1, flow.batch)
    resources = pipeline.resources()
    resources.dead_letters.put(dead_letters)
    sealed(pipeline)
    sealed(pipeline)
    (renamed,) = resources.dead_letters.scan()
    assert renamed.position == f"fragment:{hashed(pipeline)}"
    assert b"p1@example.com" not in (pipeline.folder / "dead-letters.db").read_bytes()
    # The fragment is restored, moved, and its old key gone, before the dead letter is retried.
    pipeline.store.write([FragmentWrite(PLAIN, present.version + 1, present.state, frozenset())])
    sealed(pipeline)
    assert pipeline.key_store.get([PLAIN]) == {}
    report = replay([renamed], pipeline.plan(), resources, AFTER, pipeline.sealer.open, lambda _: None)
    resources.dead_letters.close()
    assert (report.replayed, report.still_dead) == (1, 0)
    assert states(pipeline) == from_the_start(pipeline, AFTER, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_a_dead_letter_of_a_later_format_is_counted_and_holds_up_nothing(pipeline: Pipeline) -> None:
    """Beside it there is one that can be renamed."""
    (present,) = pipeline.store.read([PLAIN]).values()
    pipeline.store.write([FragmentWrite(PLAIN, present.version, b"damaged", frozenset())])
    flow = beside(pipeline, BEFORE)
    (failure,) = flow.process([later()]).failed
    body = codec.body(failure.change.encode())
    of_later = failure._replace(change=FragmentState(codec.framed(body, b"\x7f")))
    resources = pipeline.resources()
    resources.dead_letters.put(DeadLetterWriter(flow.sealer).of_failures([failure, of_later], 1, flow.batch))
    done = sealed(pipeline)
    assert done.dead_letters == 1
    assert {each.position for each in resources.dead_letters.scan()} == {
        f"fragment:{PLAIN}", f"fragment:{hashed(pipeline)}",
    }  # fmt: skip
    assert sealed(pipeline).dead_letters == 1
    resources.dead_letters.close()


def test_dead_letters_are_renamed_one_by_one_however_many_there_are(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read all at once, the dead letters of a bad day would be gigabytes; they are a hundred a page of the file."""
    monkeypatch.setattr("idgraph.jobs.reencrypt.dead_letter_renaming.DROPPED_AT_ONCE", 3)
    (present,) = pipeline.store.read([PLAIN]).values()
    pipeline.store.write([FragmentWrite(PLAIN, present.version, b"damaged", frozenset())])
    flow = beside(pipeline, BEFORE)
    given = [order(1, line, order_id=f"R{line}") for line in range(10, 20)]
    failures = [flow.process([each]).failed[0] for each in given]
    resources = pipeline.resources()
    dead_letters = DeadLetterWriter(flow.sealer).of_failures(failures, 1, flow.batch)
    resources.dead_letters.put(dead_letters)
    waiting: list[int] = []
    dropped: list[int] = []
    scan, put, drop = SqliteDeadLetters.scan, SqliteDeadLetters.put, SqliteDeadLetters.drop

    def counted_scan(self: SqliteDeadLetters, reason: str | None = None) -> Iterator[DeadLetter]:
        for dead_letter in scan(self, reason):
            if dead_letter.id in {each.id for each in dead_letters}:
                waiting.append(waiting[-1] + 1 if waiting else 1)
            yield dead_letter

    def counted_put(self: SqliteDeadLetters, some: Sequence[DeadLetter]) -> None:
        waiting.append(waiting[-1] - len(some))
        put(self, some)

    def counted_drop(self: SqliteDeadLetters, ids: Sequence[str]) -> int:
        dropped.append(len(ids))
        return drop(self, ids)

    monkeypatch.setattr(SqliteDeadLetters, "scan", counted_scan)
    monkeypatch.setattr(SqliteDeadLetters, "put", counted_put)
    monkeypatch.setattr(SqliteDeadLetters, "drop", counted_drop)
    assert sealed(pipeline).dead_letters == 0
    assert (max(waiting), waiting[-1]) == (1, 0)
    assert dropped == [3, 3, 3, 1]
    assert [each.position for each in resources.dead_letters.scan()] == 10 * [f"fragment:{hashed(pipeline)}"]
    resources.dead_letters.close()


def test_an_erased_person_is_kept_away_under_both_names(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=BEFORE)
    pipeline.process([order(1), order(2, 2)])
    names = TombstoneNames(pipeline.provider)
    resources = pipeline.resources()
    pipeline.store = resources.store = MemoryProfileStore(names)
    pipeline.process([order(1), order(2, 2)])
    dead_letters = DeadLetterSearch(pipeline.sources, BEFORE, pipeline.blind_index, pipeline.sealer.open)
    tombstones = TombstoneFile(tmp_path / "tombstones.jsonl")
    erasure = Erasure(resources, tombstones, names, lambda: dead_letters, pipeline.rules)
    erasure.erase([PLAIN], int(NOW * 1000))
    assert pipeline.store.unfinished() == []
    pipeline.snapshot = AFTER
    assert pipeline.map(order(1), order(2, 2)).erased == 1
    sealed(pipeline)
    assert set(states(pipeline)) == {hashed(pipeline, OTHER)}
    assert erasure.cancel([PLAIN]) == (1, Erased())
    assert pipeline.map(order(1)).erased == 0
    resources.dead_letters.close()
