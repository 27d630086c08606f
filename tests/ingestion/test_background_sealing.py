"""Sealing beside a flow: when it begins, what it waits for, what a stop and a failure leave."""

from __future__ import annotations

import itertools
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from idgraph.jobs.reencrypt.background_sealing import (
    BackgroundSealing,
    keep_sealed_by,
    mark_of,
    protection_of,
)
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.errors import StoreError
from idgraph.model.index import IndexDocument
from idgraph.model.queries import FullText, Query
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.model.store import FragmentWrite, ProfileStore, StoredFragment
from ingestion.metadata.snapshot_file import PinnedSnapshot
from ingestion.spark.sent_snapshots import BatchPins
from sinks.memory.data_keys import MemoryDataKeys
from sinks.memory.profiles import MemoryProfileStore
from sinks.sqlite.profiles import SqliteProfileStore
from tests.contracts.processes import start
from tests.ingestion.patience import eventually
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
from transforms.privacy.keys import DataKeyStore

OPEN = [each for each in attributes() if each.path == "identity.email"]
BEFORE = snapshot(1, declared=OPEN, defaults=UNDETECTED)
AFTER = snapshot(2)
MANY = 350


class Beside:
    """A pipeline's store, with the sealing beside it."""

    def __init__(
        self, folder: Path, store: ProfileStore | None = None, keys: DataKeyStore | None = None
    ) -> None:
        store, keys = store or MemoryProfileStore(), keys or MemoryDataKeys()
        self.pipeline = Pipeline(folder, keys, store, snapshot=BEFORE)
        self.pipeline.process([order(number, number) for number in range(1, MANY)])
        self.current = PinnedSnapshot('"2"', AFTER)
        self.asked: list[str] = []
        self.past = True
        self.file = folder / "sealed.json"
        self.opened: list[DeadLetters] = []

    def is_past(self, etag: str) -> bool:
        self.asked.append(etag)
        return self.past

    def sealing(self, share: float = 1.0, settled: float = 0.0) -> BackgroundSealing:
        resources = self.pipeline.resources()
        self.opened.append(resources.dead_letters)
        return BackgroundSealing(resources, lambda: self.current, self.is_past, self.file, share, settled)

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
        return str(json.loads(self.file.read_bytes())["protection"]) if self.file.exists() else None


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.POLL_SECONDS", 0.01)
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.BURST_SECONDS", 0.0)
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


def test_it_waits_for_what_was_begun_under_an_older_snapshot(beside: Beside) -> None:
    beside.past = False
    with beside.sealing():
        eventually(lambda: len(beside.asked) > 3)
        assert beside.found() == MANY - 1
        beside.past = True
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert set(beside.asked) == {'"2"'}


def test_a_change_settles_first_and_other_edits_are_nothing(beside: Beside) -> None:
    beside.current = PinnedSnapshot('"1"', BEFORE)
    with beside.sealing(settled=0.3):
        eventually(lambda: beside.kept() == protection_of(BEFORE))
        asked = len(beside.asked)
        beside.current = PinnedSnapshot('"1b"', BEFORE.model_copy(update={"version": 7}))
        time.sleep(0.1)
        assert len(beside.asked) == asked
        begun = time.monotonic()
        beside.current = PinnedSnapshot('"2"', AFTER)
        eventually(lambda: beside.kept() == protection_of(AFTER))
        assert time.monotonic() - begun > 0.25
    assert beside.found() == 0


def test_a_stop_ends_it_and_the_next_run_does_the_rest(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with beside.sealing(share=0.0001):
        eventually(lambda: beside.found() < MANY - 1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    assert 0 < beside.found() < MANY - 1
    assert beside.kept() == ""
    assert "`idgraph seal` does it at once" in caplog.text
    places = beside.scanned(monkeypatch)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0
    assert "" not in places
    assert len(places) < 6


PROGRAM = """
import sys, threading
from pathlib import Path
from idgraph.jobs.reencrypt import background_sealing
from tests.ingestion.test_background_sealing import opened
background_sealing.BURST_SECONDS = 0.0
with opened(Path(sys.argv[1])).sealing(share=0.0001):
    threading.Event().wait()
"""


def opened(folder: Path) -> Beside:
    """On files, as each process opens them."""
    return Beside(folder, SqliteProfileStore(folder / "profiles.db", str.encode), durable_keys(folder))


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.POLL_SECONDS", 0.01)
    beside = opened(tmp_path)
    process = start(PROGRAM, tmp_path)
    try:
        # The place of the start is sealed too.
        eventually(
            lambda: len(json.loads(beside.file.read_bytes())["place"]) > 64 if beside.file.exists() else False
        )
    finally:
        process.kill()
        process.communicate()
    assert 0 < beside.sealed() < MANY - 1
    assert b"email" not in beside.file.read_bytes()
    assert b"example.com" not in beside.file.read_bytes()
    places = beside.scanned(monkeypatch)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert "" not in places
    assert beside.sealed() == MANY - 1


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


def test_a_change_and_back_before_it_settles_is_looked_at_too(beside: Beside) -> None:
    with beside.sealing(settled=0.2):
        eventually(lambda: beside.kept() == protection_of(AFTER))
        beside.current = PinnedSnapshot('"3"', BEFORE)
        eventually(lambda: beside.kept() == "")
        beside.pipeline.process([order(number, number, order_id=f"X{number}") for number in range(1, 5)])
        assert beside.found()
        beside.current = PinnedSnapshot('"4"', AFTER)
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert beside.found() == 0


def test_what_a_killed_run_left_in_files_goes_with_the_next(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted = threading.Event()
    monkeypatch.setattr(beside.pipeline.index, "compact", compacted.set)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    compacted.clear()
    # Killed after the last page and before the end: nothing is left to seal, only the bytes.
    beside.file.write_text('{"protection": ""}')
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert compacted.is_set()


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


def test_changes_without_end_do_not_put_it_off(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.LATEST_SECONDS", 0.3)
    beside.current = PinnedSnapshot('"1"', BEFORE)
    changes = itertools.count()

    def another() -> int:
        number = next(changes)
        more = attribute(f"x{number}", encryption="protected")
        beside.current = PinnedSnapshot(f'"x{number}"', snapshot(3, declared=[*attributes(), more]))
        time.sleep(0.02)
        return beside.found()

    with beside.sealing(settled=20.0):
        eventually(lambda: beside.kept() == protection_of(BEFORE))
        begun = time.monotonic()
        while another():
            assert time.monotonic() - begun < 15, "it never begins"
        assert time.monotonic() - begun > 0.25


def test_a_stop_ends_it_however_many_came_since_it_began(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside.pipeline.store, "count", lambda: 1)
    with beside.sealing(share=0.0001):
        eventually(lambda: beside.found() < MANY - 1)
    assert 0 < beside.found() < MANY - 1
    assert beside.kept() == ""


def test_what_could_not_be_sealed_is_tried_again(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.AGAIN_SECONDS", 0.1)
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
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.AGAIN_SECONDS", 0.1)
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
    monkeypatch.setattr("idgraph.jobs.reencrypt.background_sealing.POLL_SECONDS", 0.01)
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


def test_what_an_older_idgraph_noted_is_looked_through_once_and_its_store_known_from_then_on(
    beside: Beside,
) -> None:
    """It named no store: one that was restored before the upgrade, or after it, stayed in the clear."""
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    beside.file.write_text(json.dumps({"protection": protection_of(AFTER)}))
    for looks in (True, False):
        asked = len(beside.asked)
        with beside.sealing():
            eventually(lambda: beside.kept() == protection_of(AFTER) and bool(mark_of(beside.file)))
            time.sleep(0.1)
        assert (len(beside.asked) > asked) is looks
    assert beside.pipeline.store.remembers(mark_of(beside.file) or "")


def test_what_was_noted_before_there_was_a_store_is_of_the_store_that_is_met(beside: Beside) -> None:
    """A backfill answers for what it writes itself: it does not look through what others have stored."""
    keep_sealed_by(beside.file, protection_of(AFTER))
    with beside.sealing():
        eventually(lambda: bool(mark_of(beside.file)))
        time.sleep(0.1)
    assert (beside.asked, beside.kept()) == ([], protection_of(AFTER))
    assert beside.pipeline.store.remembers(mark_of(beside.file) or "")


def test_killed_between_the_stores_mark_and_the_file_it_goes_on_where_it_was(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file named a mark that the store had dropped: a false alarm, and all of it from the start."""
    given: list[str] = []
    remember = beside.pipeline.store.remember

    def killed(mark: str, instead_of: str = "") -> None:
        if len(given) < 4:
            remember(mark, instead_of)
            given.append(mark)
        if len(given) == 4:
            raise StoreError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(beside.pipeline.store, "remember", killed)
        with beside.sealing():
            eventually(lambda: len(given) == 4)
    assert 0 < beside.sealed() < MANY - 1
    assert mark_of(beside.file) == given[2]
    places = beside.scanned(monkeypatch)
    with beside.sealing():
        eventually(lambda: beside.kept() == protection_of(AFTER))
    assert "" not in places
    assert "restored" not in caplog.text
    assert beside.sealed() == MANY - 1


def copied(file: Path, to: Path) -> None:
    """As a backup is made."""
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
