"""Schema changes on their way: once each, in time, and none lost."""

from __future__ import annotations

import json
import logging
import stat
import threading
import time
from pathlib import Path

import pytest

from idgraph.model.attributes import DataType
from idgraph.model.errors import MetadataError, RefusedError, StoreError
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange, SchemaUpdates
from idgraph.model.snapshots import DiscoveryDefaults, PinnedSnapshot
from ingestion.metadata import schema_buffer
from ingestion.metadata.schema_buffer import SchemaBuffer, SchemaSender
from ingestion.metadata.schema_journal import SchemaJournal
from tests.ingestion.conftest import Service, client_of
from tests.retail import snapshot
from tests.support.patience import eventually

NEVER = 3600.0


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "schema-changes.jsonl"


def change(path: str, kind: DataType = DataType.STRING, source: str = "shop") -> SchemaChange:
    return SchemaChange(path=path, data_type=kind, source=source, first_event="file:x#1")


def changes(*paths: str) -> list[SchemaChange]:
    return [change(path) for path in paths]


def buffering(updates: SchemaUpdates, journal: Path, max_updates: int, interval: float) -> SchemaBuffer:
    return SchemaBuffer(SchemaSender(updates), SchemaJournal(journal), max_updates, interval)


class _Service:
    """Takes changes, unless it is away."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.is_away = False
        self.refusals = 0
        self._lock = threading.Lock()

    def send(self, sent: list[SchemaChange]) -> list[RefusedSchemaChange]:
        with self._lock:
            if self.is_away:
                self.refusals += 1
                raise MetadataError("the metadata service is away")
            self.batches.append([each.path for each in sent])
            return []

    def taken(self) -> list[str]:
        with self._lock:
            return [path for batch in self.batches for path in batch]


def send_one(buffer: SchemaBuffer, service: _Service) -> None:
    """So that what comes next waits for the interval; the service forgets it."""
    buffer.add(changes("sent.before"))
    eventually(lambda: buffer.waiting() == 0)
    service.batches.clear()


def test_changes_are_sent_once_each(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 100, NEVER) as buffer:
        send_one(buffer, service)
        assert buffer.add(changes("a", "b", "a")) == 2
        assert buffer.add(changes("b", "c")) == 1
        assert buffer.add([change("a", DataType.NUMBER), change("a", source="other")]) == 1
        assert buffer.waiting() == 4
    assert service.batches == [["a", "b", "c", "a"]]
    assert journal.read_bytes() == b""


def test_what_was_sent_is_remembered(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 1, NEVER) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: buffer.waiting() == 0)
        assert buffer.add(changes("a")) == 0
    assert service.taken() == ["a"]


def test_a_path_that_was_seen_and_is_new_again_is_sent(journal: Path) -> None:
    """As after it was redacted."""
    service = _Service()
    with buffering(service, journal, 1, NEVER) as buffer:
        sight = change("a").model_copy(update={"seen": True})
        assert [buffer.add([each]) for each in (sight, sight, change("a"))] == [1, 0, 1]


def test_it_forgets_within_bounds(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_buffer, "REMEMBERED", 2)
    service = _Service()
    with buffering(service, journal, 1, NEVER) as buffer:
        for path in "abc":
            buffer.add(changes(path))
            eventually(lambda: buffer.waiting() == 0)
        assert [buffer.add(changes(path)) for path in "cba"] == [0, 0, 1]


def test_enough_changes_are_sent_at_once_in_bounded_batches(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 3, NEVER) as buffer:
        send_one(buffer, service)
        buffer.add(changes("a", "b"))
        assert service.batches == []
        buffer.add(changes("c", "d", "e", "f", "g"))
        eventually(lambda: buffer.waiting() == 1)
        assert service.batches == [["a", "b", "c"], ["d", "e", "f"]]
    assert service.batches[2:] == [["g"]]


def test_few_changes_are_sent_when_the_interval_has_passed_though_nothing_else_comes(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 100, 0.2) as buffer:
        started = time.monotonic()
        send_one(buffer, service)
        buffer.add(changes("a", "b"))
        eventually(lambda: service.taken() == ["a", "b"])
        assert time.monotonic() - started > 0.19


def test_what_comes_after_a_pause_is_sent_at_once(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 100, NEVER) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: service.taken() == ["a"])
        eventually(lambda: buffer.waiting() == 0)
        buffer.add(changes("b"))
        assert buffer.waiting() == 1
    assert service.batches == [["a"], ["b"]]


def test_adding_does_not_wait_for_a_service_that_hangs(journal: Path) -> None:
    release = threading.Event()

    class Hanging:
        def send(self, _: list[SchemaChange]) -> list[RefusedSchemaChange]:
            assert release.wait(60)
            return []

    with buffering(Hanging(), journal, 1, 0.01) as buffer:
        assert buffer.add(changes("a")) == 1
        assert buffer.add(changes("b")) == 1
        assert buffer.waiting() == 2
        release.set()


def test_changes_are_on_disk_before_they_are_sent(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 100, NEVER) as buffer:
        send_one(buffer, service)
        buffer.add(changes("a", "b"))
        assert [json.loads(line)["path"] for line in journal.read_text().splitlines()] == ["a", "b"]
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600


def test_a_service_that_is_away_gets_them_when_it_is_back(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = _Service()
    service.is_away = True
    with caplog.at_level(logging.WARNING), buffering(service, journal, 1, NEVER) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: service.refusals > 2)
        buffer.add(changes("b"))
        service.is_away = False
        eventually(lambda: sorted(service.taken()) == ["a", "b"])
    reported = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert reported == [
        "the metadata service is away; schema changes wait for the metadata service",
        "the metadata service, for schema changes, is back",
    ]


def test_what_was_not_taken_is_sent_after_a_restart(journal: Path) -> None:
    service = _Service()
    service.is_away = True
    with buffering(service, journal, 100, NEVER) as buffer:
        buffer.add(changes("a", "b"))
    assert service.refusals
    service.is_away = False
    with buffering(service, journal, 100, 0.01) as buffer:
        assert buffer.add(changes("b", "c")) == 1
        eventually(lambda: buffer.waiting() == 0)
    assert service.taken() == ["a", "b", "c"]
    assert journal.read_bytes() == b""


def test_a_torn_line_loses_only_itself(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = change("a").model_dump_json()
    journal.write_text(f"{whole}\n{whole[:20]}")
    service = _Service()
    service.is_away = True
    with caplog.at_level(logging.WARNING), buffering(service, journal, 100, NEVER) as buffer:
        assert buffer.waiting() == 1
        # As if the crash came again before anything was sent: the new line must stand by itself.
        buffer.add(changes("b"))
    assert "torn line" in caplog.text
    service.is_away = False
    with buffering(service, journal, 100, NEVER):
        pass
    assert service.taken() == ["a", "b"]


def test_a_last_line_without_its_end_is_whole_or_nothing(journal: Path) -> None:
    journal.write_text(change("a").model_dump_json())
    service = _Service()
    service.is_away = True
    with buffering(service, journal, 100, NEVER) as buffer:
        buffer.add(changes("b"))
    service.is_away = False
    with buffering(service, journal, 100, NEVER):
        pass
    assert service.taken() == ["a", "b"]


def test_a_journal_that_cannot_be_written_is_an_error(journal: Path) -> None:
    with buffering(_Service(), journal.parent / "none" / "journal", 100, NEVER) as buffer:
        with pytest.raises(StoreError, match="No such file"):
            buffer.add(changes("a"))
        assert buffer.waiting() == 0


def test_what_nobody_expected_does_not_end_the_sending(journal: Path) -> None:
    class Odd(_Service):
        def send(self, sent: list[SchemaChange]) -> list[RefusedSchemaChange]:
            if not self.refusals:
                self.refusals += 1
                raise RuntimeError("odd")
            return super().send(sent)

    service = Odd()
    with buffering(service, journal, 1, NEVER) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: service.taken() == ["a"])


def test_a_change_that_is_refused_for_good_blocks_nothing_behind_it(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Strict(_Service):
        def send(self, sent: list[SchemaChange]) -> list[RefusedSchemaChange]:
            if any(each.path == "bad" for each in sent):
                raise RefusedError("HTTP 422")
            return super().send(sent)

    service = Strict()
    with caplog.at_level(logging.WARNING), buffering(service, journal, 3, 0.01) as buffer:
        buffer.add(changes("a", "bad", "b", "c"))
        eventually(lambda: buffer.waiting() == 0)
        assert buffer.add(changes("bad")) == 0
    assert sorted(service.taken()) == ["a", "b", "c"]
    assert journal.read_bytes() == b""
    assert '"bad" (string): HTTP 422' in caplog.text
    assert "1 schema change(s) were refused in this run" in caplog.text


def test_memory_stays_bounded_while_the_service_is_away_and_nothing_is_lost(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_buffer, "REMEMBERED", 10)
    service = _Service()
    service.is_away = True
    with buffering(service, journal, 7, 0.01) as buffer:
        for start in range(0, 100, 20):
            buffer.add(changes(*(f"p{number}" for number in range(start, start + 20))))
        assert buffer.waiting() == 100
        assert held(buffer) <= 10
        service.is_away = False
        eventually(lambda: buffer.waiting() == 0)
    assert service.taken() == [f"p{number}" for number in range(100)]


def held(thing: object) -> int:
    """The most things that any collection of an object, or of what it is made of, holds."""
    sizes = [0]
    for value in vars(thing).values():
        if isinstance(value, dict | list | set | tuple):
            sizes.append(len(value))
        elif type(value).__module__.startswith("ingestion."):
            sizes.append(held(value))
    return max(sizes)


def test_what_was_sent_is_sent_again_to_a_service_that_was_restored_from_a_backup(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 1, NEVER) as buffer:
        for version, etag, reported in ((4, "x", 1), (4, "x", 0), (5, "y", 0), (3, "z", 1), (3, "other", 1)):
            buffer.follow(PinnedSnapshot(etag, snapshot(version)))
            assert buffer.add(changes("a")) == reported, version
            eventually(lambda: buffer.waiting() == 0)
    assert service.taken() == ["a", "a", "a"]


def test_what_was_over_a_cap_is_sent_again_when_the_defaults_changed(journal: Path) -> None:
    service = _Service()
    with buffering(service, journal, 1, NEVER) as buffer:
        for version, most, reported in ((1, 1, 1), (2, 1, 0), (3, 2, 1)):
            defaults = DiscoveryDefaults(most_attributes=most)
            newer = snapshot(version).model_copy(update={"defaults": defaults})
            buffer.follow(PinnedSnapshot(str(version), newer))
            assert buffer.add(changes("a")) == reported, version
            eventually(lambda: buffer.waiting() == 0)
    assert service.taken() == ["a", "a"]


def test_a_journal_that_somebody_cut_holds_nothing_up(journal: Path) -> None:
    service = _Service()
    service.is_away = True
    with buffering(service, journal, 100, 0.01) as buffer:
        buffer.add(changes("a", "b"))
        eventually(lambda: service.refusals)
        journal.write_bytes(b"")
        service.is_away = False
        buffer.add(changes("c"))
        eventually(lambda: buffer.waiting() == 0)
        buffer.add(changes("d"))
        eventually(lambda: service.taken()[-2:] == ["c", "d"])


def test_with_a_real_service(service: Service, journal: Path) -> None:
    with client_of(service.url) as client:
        with buffering(client, journal, 100, 0.01) as buffer:
            buffer.add([*changes("brand.new"), change("identity.email", DataType.ARRAY)])
            eventually(lambda: buffer.waiting() == 0)
        found = client.get_attribute("brand.new")
        assert found is not None
        assert (found.status, found.data_type, found.source) == ("discovered", "string", "shop")
        known = client.get_attribute("identity.email")
        assert known is not None
        assert [conflict.data_type for conflict in known.conflicts] == ["array"]


def test_with_a_real_service_that_refuses_the_token(service: Service, journal: Path) -> None:
    refused = client_of(service.url, "a-token-nobody-ever-made")
    with refused, buffering(refused, journal, 100, NEVER) as buffer:
        buffer.add(changes("brand.new"))
    assert b"brand.new" in journal.read_bytes()
