"""Sealing beside a flow: when it begins, what it waits for, what a stop and a failure leave."""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from idgraph.jobs.job import JobRunner, Run
from idgraph.jobs.reencrypt.policy_change import (
    PolicyChanges,
    Reencryption,
    protection_of,
    sealed_by,
)
from idgraph.jobs.reencrypt.stored_sealing import StoredSealing
from idgraph.model.backoff import Backoff
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.errors import StoreError
from idgraph.model.index import IndexDocument
from idgraph.model.jobs import JobState, Requester
from idgraph.model.queries import FullText, Query
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot, PinnedSnapshot
from idgraph.model.store import FragmentWrite, ProfileStore, StoredFragment
from idgraph.model.tombstones import Tombstone
from idgraph.projection.parts import Projected
from idgraph.projection.projection import Projection
from ingestion.spark.sent_snapshots import BatchPins
from sinks.sqlite.jobs import SqliteJobLog
from sinks.sqlite.profiles import SqliteProfileStore
from tests.contracts.processes import start
from tests.retail import (
    UNDETECTED,
    Pipeline,
    attribute,
    attributes,
    durable_keys,
    order,
    snapshot,
    spec,
)
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.patience import eventually
from transforms.privacy.keys import DataKeyStore
from transforms.spec.mapping import CompiledSnapshot

OPEN = [each for each in attributes() if each.path == "identity.email"]
BEFORE = snapshot(1, declared=OPEN, defaults=UNDETECTED)
AFTER = snapshot(2)
MANY = 350
FLOW = "main"


class Beside:
    """A pipeline's store, with the sealing beside it."""

    def __init__(
        self,
        folder: Path,
        store: ProfileStore | None = None,
        keys: DataKeyStore | None = None,
        is_new: bool = False,
    ) -> None:
        store, keys = store or MemoryProfileStore(), keys or MemoryDataKeys()
        self.pipeline = Pipeline(folder, keys, store, snapshot=BEFORE)
        if not is_new:
            self.store_all()
        self.current = PinnedSnapshot('"2"', AFTER)
        self.asked: list[str] = []
        self.past = True
        self.jobs = SqliteJobLog(folder / "jobs.db", folder / "jobs")
        self.runner = JobRunner(self.jobs, self.pipeline.sealer)
        self.baseline: str | None = None
        self.opened: list[DeadLetters] = []

    def store_all(self) -> None:
        self.pipeline.process([order(number, number) for number in range(1, MANY)])

    def is_past(self, etag: str) -> bool:
        self.asked.append(etag)
        return self.past

    def sealing(self, share: float = 1.0, last_batch: int | None = None) -> PolicyChanges:
        resources = self.pipeline.resources()
        self.opened.append(resources.dead_letters)
        return PolicyChanges(
            FLOW, self.runner, resources, lambda: self.current, self.is_past, self.baseline, share, last_batch
        )

    def command(self) -> None:
        """`idgraph seal`, to its end."""
        sealing = StoredSealing(self.pipeline.resources(), CompiledSnapshot(self.current.snapshot))
        job = Reencryption(sealing, self.current.snapshot, self.pipeline.store)
        self.runner.run(job, Requester("ann", "at once"))

    def sealed(self) -> int:
        """How many fragments have nothing in the clear."""
        return sum(b"Main St" not in each.state for each in self.pipeline.store.scan())

    def scanned(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Behind which ids pages are read from now on."""
        places: list[str] = []
        scan = self.pipeline.store.scan

        def noted(after: str = "", limit: int = 1000) -> list[StoredFragment]:
            places.append(after)
            return scan(after, limit)

        monkeypatch.setattr(self.pipeline.store, "scan", noted)
        return places

    def found(self) -> int:
        return self.pipeline.index.count(Query((FullText("main"),)))

    def kept(self) -> str | None:
        """The protection that all is sealed by, as the job log has it."""
        return sealed_by(self.runner, FLOW, self.pipeline.store)

    def runs(self) -> int:
        return len([*self.jobs.scan()])


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    monkeypatch.setattr("idgraph.jobs.reencrypt.policy_change.POLL_SECONDS", 0.01)
    monkeypatch.setattr("idgraph.jobs.reencrypt.policy_change.RETRY", Backoff(base=0.01))
    made = Beside(tmp_path)
    yield made
    for dead_letters in made.opened:
        dead_letters.close()


def test_what_is_stored_is_sealed_once(beside: Beside) -> None:
    assert beside.found() == MANY - 1
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
        asked = len(beside.asked)
        time.sleep(0.1)
        assert len(beside.asked) == asked, "and then it rests"
    assert beside.found() == 0
    with beside.sealing():
        time.sleep(0.1)
    assert len(beside.asked) == asked, "the next run knows it too"


@pytest.mark.usefixtures("beside")
def test_a_new_flow_does_not_look_through_what_it_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new").mkdir()
    new = Beside(tmp_path / "new", is_new=True)
    new.current = PinnedSnapshot('"1"', BEFORE)
    with new.sealing():
        assert new.kept() == protection_of(BEFORE)
        new.store_all()
        places = new.scanned(monkeypatch)
        time.sleep(0.1)
        assert places == []
        new.current = PinnedSnapshot('"2"', AFTER)
        eventually(lambda: new.kept() == protection_of(AFTER))
    assert new.found() == 0
    for dead_letters in new.opened:
        dead_letters.close()


def test_definitions_of_behaviour_that_come_meanwhile_are_followed(beside: Beside) -> None:
    beside.past = False
    with beside.sealing():
        eventually(lambda: beside.asked)
        newer = AFTER.model_copy(update={"version": 3, "behaviour_version": 1})
        beside.current = PinnedSnapshot('"3"', newer)
        rules = CompiledSnapshot(newer).attributes.index_rules
        Projection(beside.pipeline.store, beside.pipeline.index, lambda: rules).sweep()
        beside.past = True
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert (beside.found(), beside.pipeline.store.outbox()) == (0, [])


def test_it_waits_for_what_was_begun_under_an_older_snapshot(beside: Beside) -> None:
    beside.past = False
    with beside.sealing():
        eventually(lambda: len(beside.asked) > 3)
        assert beside.found() == MANY - 1
        beside.past = True
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert set(beside.asked) == {'"2"'}


def test_other_edits_are_nothing(beside: Beside) -> None:
    beside.current = PinnedSnapshot('"1"', BEFORE)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(BEFORE))
        beside.current = PinnedSnapshot('"1b"', BEFORE.model_copy(update={"version": 7}))
        time.sleep(0.1)
        assert beside.runs() == 1
        beside.current = PinnedSnapshot('"2"', AFTER)
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0


def test_a_stop_ends_it_and_the_next_run_does_the_rest(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with beside.sealing(share=0.0001):
        eventually(lambda: beside.found() < MANY - 1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 60, "it has slept through the stop"
    assert 0 < beside.found() < MANY - 1
    assert beside.kept() == ""
    assert "`idgraph seal` does it at once" in caplog.text
    (job,) = beside.jobs.scan()
    assert (job.state, job.origin.who) == (JobState.INTERRUPTED, "flow main")
    places = beside.scanned(monkeypatch)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0
    assert "" not in places
    assert len(places) < 6


PROGRAM = """
import sys, threading
from pathlib import Path
from tests.jobs.reencrypt.test_policy_change import opened
with opened(Path(sys.argv[1])).sealing(share=0.0001):
    threading.Event().wait()
"""


def opened(folder: Path) -> Beside:
    """On files, as each process opens them."""
    return Beside(folder, SqliteProfileStore(folder / "profiles.db", str.encode), durable_keys(folder))


@pytest.mark.process
def test_a_killed_run_resumes_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.jobs.reencrypt.policy_change.POLL_SECONDS", 0.01)
    beside = opened(tmp_path)
    process = start(PROGRAM, tmp_path)
    try:
        eventually(lambda: any(each.progress.done for each in beside.jobs.scan()))
    finally:
        process.kill()
        process.communicate()
    assert 0 < beside.sealed() < MANY - 1
    for file in tmp_path.glob("jobs.db*"):
        assert b"example.com" not in file.read_bytes()
    places = beside.scanned(monkeypatch)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert "" not in places
    assert beside.sealed() == MANY - 1
    assert beside.runs() == 1


def test_a_command_that_ended_early_begins_again(beside: Beside) -> None:
    """Found by the long tests under load: an order of the older policy, before the place where `idgraph seal` was killed,
    stayed in the clear."""

    def run(watch: Callable[[Run], None]) -> None:
        sealing = StoredSealing(beside.pipeline.resources(), CompiledSnapshot(AFTER))
        job = Reencryption(sealing, AFTER, beside.pipeline.store, page=100)
        beside.runner.run(job, Requester("ann", "test"), watch=watch)

    def end_early(run: Run) -> None:
        if run.progress.done >= 300:
            raise StoreError("the machine goes down")

    with pytest.raises(StoreError):
        run(end_early)
    assert beside.sealed()
    beside.pipeline.process([order(1, MANY, order_id="X1")])
    run(lambda _: None)
    assert beside.sealed() == len(beside.pipeline.store.scan())


def test_protection_that_changed_and_changed_back_is_looked_at_from_the_start(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was mapped in between is in the clear, wherever it stands."""
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
        beside.pipeline.snapshot = BEFORE
        beside.current = PinnedSnapshot('"3"', BEFORE)
        eventually(lambda: beside.kept() == protection_of(BEFORE))
        beside.pipeline.process([order(number, number, order_id=f"X{number}") for number in range(1, 5)])
        assert beside.found()
        beside.current = PinnedSnapshot('"4"', AFTER)
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0


def test_a_change_and_back_before_it_begins_is_looked_at_too(beside: Beside) -> None:
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
        beside.past = False
        beside.current = PinnedSnapshot('"3"', BEFORE)
        eventually(lambda: beside.kept() == "")
        beside.pipeline.process([order(number, number, order_id=f"X{number}") for number in range(1, 5)])
        assert beside.found()
        beside.current = PinnedSnapshot('"4"', AFTER)
        beside.past = True
        eventually(lambda: beside.kept() == protection_of(AFTER) and not beside.found())


def test_a_change_and_back_while_it_runs_is_looked_at_too(beside: Beside) -> None:
    """The page at which it is stopped stands before what was mapped meanwhile."""
    with beside.sealing(share=0.01):
        eventually(lambda: any(each.progress.done for each in beside.jobs.scan()))
        beside.current = PinnedSnapshot('"3"', BEFORE)
        time.sleep(0.1)
    beside.pipeline.snapshot = BEFORE
    beside.pipeline.process([order(number, number, order_id=f"X{number}") for number in range(1, 5)])
    beside.current = PinnedSnapshot('"4"', AFTER)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0


def test_what_a_killed_run_left_in_files_goes_with_the_next(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted = threading.Event()

    def compact() -> None:
        if not compacted.is_set():
            compacted.set()
            raise StoreError("killed here: nothing is left to seal, only the bytes")

    monkeypatch.setattr(beside.pipeline.index, "compact", compact)
    with beside.sealing():
        eventually(compacted.is_set)
    assert beside.kept() == ""
    again = threading.Event()
    monkeypatch.setattr(beside.pipeline.index, "compact", again.set)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert again.is_set()


@pytest.mark.parametrize("error", [StoreError("the disk is full"), ValueError("a canary value")])
def test_a_failure_is_reported_and_tried_again(
    beside: Beside, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    count: Callable[[], int] = beside.pipeline.store.count
    failures = iter([error, error])

    def failing() -> int:
        for each in failures:
            raise each
        return count()

    monkeypatch.setattr(beside.pipeline.store, "count", failing)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert "not sealed yet" in caplog.text
    assert "canary" not in caplog.text


def test_a_page_that_failed_is_counted_once(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count(1)
    sweep = Projection.sweep

    def failing(projection: Projection) -> Projected:
        if next(calls) in (2, 4):
            raise StoreError("the disk is full")
        return sweep(projection)

    monkeypatch.setattr(Projection, "sweep", failing)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    states = [(each.state, each.progress) for each in beside.jobs.scan()]
    assert all(progress.done <= progress.total for _, progress in states), states
    (last, *_) = states
    assert last[0] is JobState.DONE
    assert last[1].done == last[1].total
    assert last[1].counts["fragments"] == MANY - 1


CHANGES: list[tuple[str, MetadataSnapshot, bool]] = [
    (
        "a discovered attribute",
        snapshot(3, declared=[*attributes(), attribute("x", status="discovered")]),
        False,
    ),
    ("an exception that an admin made", snapshot(3, declared=[*attributes(), attribute("x")]), True),
    (
        "one that does",
        snapshot(3, declared=[*attributes(), attribute("x", encryption="protected")]),
        True,
    ),
    ("a default", snapshot(3, defaults=DiscoveryDefaults.model_validate({"encryption": "protected"})), True),
    ("detection", snapshot(3, defaults=UNDETECTED), True),
    ("another version", snapshot(9), False),
]


@pytest.mark.parametrize(("_what", "other", "differs"), CHANGES, ids=[each[0] for each in CHANGES])
def test_only_what_protects_makes_it_look_again(_what: str, other: MetadataSnapshot, differs: bool) -> None:
    assert (protection_of(AFTER) != protection_of(other)) is differs


def known(path: str, data_type: str = "string", **stated: str) -> MetadataSnapshot:
    return snapshot(
        3, declared=[attribute("a", encryption="protected"), attribute(path, data_type, **stated)]
    )


JUDGED_OTHERWISE: list[tuple[str, MetadataSnapshot, MetadataSnapshot]] = [
    ("an exception taken back", known("a.b"), known("a.b", status="discovered")),
    ("a decision taken back", known("note"), known("note", status="discovered")),
    (
        "another type of what is searchable",
        known("note", "integer", encryption="searchable"),
        known("note", "string", encryption="searchable"),
    ),
    (
        "the place of the event id",
        snapshot(3, specs=[spec("orders", id="order_id")]),
        snapshot(3, specs=[spec("orders", id="cart")]),
    ),
]


@pytest.mark.parametrize(
    ("_what", "before", "after"), JUDGED_OTHERWISE, ids=[each[0] for each in JUDGED_OTHERWISE]
)
def test_whatever_judges_stored_values_otherwise_makes_it_look_again(
    _what: str, before: MetadataSnapshot, after: MetadataSnapshot
) -> None:
    assert protection_of(before) != protection_of(after)


@pytest.mark.parametrize(
    ("above", "alike"), [("none", False), ("protected", True), ("searchable", False), (None, True)]
)
def test_what_the_defaults_protect_is_discovered_without_another_look(above: str | None, alike: bool) -> None:
    """Each new attribute began a pass over all profiles, whose values were sealed from the start."""
    defaults = DiscoveryDefaults.model_validate({"encryption": "protected"})
    declared = [attribute("x", encryption=above)] if above else []
    found = [*declared, attribute("x.y", encryption="protected", status="discovered")]
    before, after = (snapshot(3, declared=each, defaults=defaults) for each in (declared, found))
    assert (protection_of(before) == protection_of(after)) is alike


def test_changes_without_end_do_not_put_it_off(beside: Beside) -> None:
    beside.current = PinnedSnapshot('"1"', BEFORE)
    changes = itertools.count()

    def another() -> int:
        number = next(changes)
        more = attribute(f"x{number}", encryption="protected")
        beside.current = PinnedSnapshot(f'"x{number}"', snapshot(3, declared=[*attributes(), more]))
        time.sleep(0.02)
        return beside.found()

    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(BEFORE))
        begun = time.monotonic()
        while another():
            assert time.monotonic() - begun < 60, "it never begins"


def test_a_complete_command_spares_the_flow_its_job(beside: Beside) -> None:
    """Found by use: the flow looked through all that `idgraph seal` had sealed just before."""
    before = time.time_ns() // 1_000_000
    beside.command()
    assert beside.found() == 0
    with beside.sealing(last_batch=before):
        eventually(lambda: beside.asked)
        time.sleep(0.2)
        assert beside.runs() == 1
        # The next change is the flow's.
        more = [*attributes(), attribute("orders.last.id", encryption="protected")]
        beside.current = PinnedSnapshot('"3"', snapshot(3, declared=more))
        eventually(lambda: beside.kept() == protection_of(beside.current.snapshot))
    assert beside.runs() == 2


@pytest.mark.parametrize("late", [True, False], ids=["a later batch", "a batch that runs again"])
def test_what_a_flow_wrote_since_the_command_began_is_its_own(beside: Beside, late: bool) -> None:
    beside.command()
    beside.past = late
    after = time.time_ns() // 1_000_000 + 1
    with beside.sealing(last_batch=after if late else 0):
        if not late:
            eventually(lambda: beside.runs() == 2)
            beside.past = True
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.runs() == 2


def test_a_change_of_one_attribute_opens_no_profile_without_it(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by use: each new protection looked through all profiles, a dozen in a second."""
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
        looked_at: set[str] = set()
        tombstones = beside.pipeline.store.tombstones

        def noted(ids: Iterable[str]) -> Mapping[str, Tombstone]:
            some = [*ids]
            looked_at.update(some)
            return tombstones(some)

        extra = spec("orders", name="extra", event_type="gift", source="orders")
        monkeypatch.setattr(beside.pipeline.store, "tombstones", noted)
        absent = [*attributes(), attribute("orders.gift.note", encryption="protected")]
        beside.current = PinnedSnapshot('"3"', snapshot(3, declared=absent))
        eventually(lambda: beside.kept() == protection_of(beside.current.snapshot))
        assert looked_at == set()
        held = [*absent, attribute("orders.last.id", encryption="protected")]
        beside.current = PinnedSnapshot('"4"', snapshot(4, declared=held))
        eventually(lambda: beside.kept() == protection_of(beside.current.snapshot))
        assert len(looked_at) >= MANY - 1
        # A spec may name persons otherwise: all are looked at.
        looked_at.clear()
        specs = [*snapshot().specs, extra]
        beside.current = PinnedSnapshot('"5"', snapshot(5, declared=held, specs=specs))
        eventually(lambda: beside.kept() == protection_of(beside.current.snapshot))
        assert len(looked_at) >= MANY - 1


def test_cancelled_it_rests_until_the_next_start(beside: Beside) -> None:
    with beside.sealing(share=0.0001):
        eventually(lambda: any(beside.jobs.cancel(each.id) for each in beside.jobs.scan()))
        eventually(lambda: [each.state for each in beside.jobs.scan()] == [JobState.CANCELLED])
        time.sleep(0.1)
        assert beside.runs() == 1
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0


def test_two_flows_take_turns_and_each_answers_for_what_it_wrote(beside: Beside) -> None:
    other = PolicyChanges(
        "other", beside.runner, beside.pipeline.resources(), lambda: beside.current, beside.is_past, share=1.0
    )
    with beside.sealing(share=0.1), other:
        eventually(lambda: beside.kept() == protection_of(AFTER))
        eventually(lambda: sealed_by(beside.runner, "other", beside.pipeline.store) == protection_of(AFTER))
    assert {(each.state, each.what["flow"]) for each in beside.jobs.scan()} == {
        (JobState.DONE, "main"),
        (JobState.DONE, "other"),
    }


def test_a_stop_ends_it_however_many_came_since_it_began(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside.pipeline.store, "count", lambda: 1)
    with beside.sealing(share=0.0001):
        eventually(lambda: beside.found() < MANY - 1)
    assert 0 < beside.found() < MANY - 1
    assert beside.kept() == ""


def test_what_could_not_be_sealed_is_tried_again(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.jobs.reencrypt.policy_change.AGAIN_SECONDS", 0.1)
    store = beside.pipeline.store
    victim = store.scan(limit=1)[0]
    store.write([FragmentWrite(victim.id, victim.version, b"damaged", frozenset())])
    with beside.sealing():
        eventually(lambda: len(beside.asked) > 1)
        assert beside.kept() == ""
        store.write([FragmentWrite(victim.id, victim.version + 1, victim.state, frozenset())])
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0


def test_it_looks_again_while_the_index_refuses(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.jobs.reencrypt.policy_change.AGAIN_SECONDS", 0.1)
    index = beside.pipeline.index
    put = index.put
    refuses = threading.Event()
    refuses.set()

    def refusing(documents: Sequence[IndexDocument]) -> dict[str, str]:
        return {each.id: "refused" for each in documents} if refuses.is_set() else put(documents)

    monkeypatch.setattr(index, "put", refusing)
    with beside.sealing():
        eventually(lambda: len(beside.asked) > 1)
        assert beside.kept() == ""
        refuses.clear()
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0


def test_a_batch_is_unfinished_until_spark_has_noted_it(tmp_path: Path) -> None:
    pins = BatchPins(tmp_path)
    assert pins.unfinished() is None
    pins.pin("a/b/query-1/4", PinnedSnapshot('"1"', BEFORE))
    assert pins.unfinished() is None, "no checkpoint: it never comes again"
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"query-1"}')
    assert pins.unfinished() == '"1"'
    (checkpoint / "commits" / "3").touch()
    assert pins.unfinished() == '"1"'
    (checkpoint / "commits" / "4").touch()
    assert pins.unfinished() is None
    pins.pin("a/b/query-1/5", PinnedSnapshot('"2"', AFTER))
    assert pins.unfinished() == '"2"'
    (checkpoint / "metadata").write_text('{"id":"query-2"}')
    assert pins.unfinished() is None


def test_a_store_that_was_restored_from_before_is_sealed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What policy protects was in the clear again, and nobody looked."""
    monkeypatch.setattr("idgraph.jobs.reencrypt.policy_change.POLL_SECONDS", 0.01)
    file = tmp_path / "profiles.db"
    beside = Beside(tmp_path, SqliteProfileStore(file, str.encode), durable_keys(tmp_path))
    backup = tmp_path / "backup.db"
    copied(file, backup)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.sealed() == MANY - 1
    done = tmp_path / "done.db"
    copied(file, done)
    for restored, is_old in ((done, False), (backup, True)):
        beside.pipeline.store.close()
        for each in tmp_path.glob("profiles.db*"):
            each.unlink()
        copied(restored, file)
        beside.pipeline.store = SqliteProfileStore(file, str.encode)
        assert (beside.sealed() == 0) is is_old
        asked = len(beside.asked)
        with beside.sealing():
            eventually(lambda: beside.sealed() == MANY - 1)
            time.sleep(0.1)
        assert (len(beside.asked) > asked) is is_old
    beside.pipeline.store.close()
    for dead_letters in beside.opened:
        dead_letters.close()


def test_what_a_backfill_did_not_write_it_does_not_look_through(beside: Beside) -> None:
    beside.baseline = protection_of(AFTER)
    with beside.sealing():
        time.sleep(0.1)
    assert (beside.asked, beside.runs()) == ([], 0)


def test_a_store_that_was_restored_while_it_was_interrupted_is_looked_through_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.jobs.reencrypt.policy_change.POLL_SECONDS", 0.01)
    beside = opened(tmp_path)
    file, backup = tmp_path / "profiles.db", tmp_path / "backup.db"
    copied(file, backup)
    with beside.sealing(share=0.0001):
        eventually(lambda: beside.sealed() > 0)
    assert 0 < beside.sealed() < MANY - 1
    beside.pipeline.store.close()
    for each in tmp_path.glob("profiles.db*"):
        each.unlink()
    copied(backup, file)
    beside.pipeline.store = SqliteProfileStore(file, str.encode)
    assert beside.sealed() == 0
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.sealed() == MANY - 1


def copied(file: Path, to: Path) -> None:
    """As a backup is made."""
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
