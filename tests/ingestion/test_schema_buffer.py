"""Schema changes on their way: once each, in time, and none lost."""

from __future__ import annotations

import json
import logging
import stat
import threading
from pathlib import Path

import pytest

from ingestion import schema_buffer
from ingestion.schema_buffer import SchemaBuffer
from model.attributes import DataType
from model.errors import MetadataError, StoreError
from model.schema_changes import SchemaChange
from tests.ingestion.conftest import Service, client_of
from tests.ingestion.patience import eventually

NEVER = 3600.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_buffer, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(schema_buffer, "LAST_RETRY_SECONDS", 0.05)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "schema-changes.jsonl"


def change(path: str, kind: DataType = DataType.STRING, source: str = "shop") -> SchemaChange:
    return SchemaChange(path=path, data_type=kind, source=source, first_event="file:x#1")


def changes(*paths: str) -> list[SchemaChange]:
    return [change(path) for path in paths]


class _Service:
    """Takes changes, unless it is away."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.is_away = False
        self.refusals = 0
        self._lock = threading.Lock()

    def send(self, sent: list[SchemaChange]) -> None:
        with self._lock:
            if self.is_away:
                self.refusals += 1
                raise MetadataError("the metadata service is away")
            self.batches.append([each.path for each in sent])

    def taken(self) -> list[str]:
        with self._lock:
            return [path for batch in self.batches for path in batch]


def test_changes_are_sent_once_each(journal: Path) -> None:
    service = _Service()
    with SchemaBuffer(service, journal, 100, NEVER) as buffer:
        assert buffer.add(changes("a", "b", "a")) == 2
        assert buffer.add(changes("b", "c")) == 1
        assert buffer.add([change("a", DataType.NUMBER), change("a", source="other")]) == 1
        assert buffer.waiting() == 4
    assert service.batches == [["a", "b", "c", "a"]]
    assert journal.read_bytes() == b""


def test_what_was_sent_is_remembered(journal: Path) -> None:
    service = _Service()
    with SchemaBuffer(service, journal, 1, NEVER) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: buffer.waiting() == 0)
        assert buffer.add(changes("a")) == 0
    assert service.taken() == ["a"]


def test_it_forgets_within_bounds(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_buffer, "REMEMBERED", 2)
    service = _Service()
    with SchemaBuffer(service, journal, 1, NEVER) as buffer:
        for path in "abc":
            buffer.add(changes(path))
            eventually(lambda: buffer.waiting() == 0)
        assert [buffer.add(changes(path)) for path in "cba"] == [0, 0, 1]


def test_enough_changes_are_sent_at_once_in_bounded_batches(journal: Path) -> None:
    service = _Service()
    with SchemaBuffer(service, journal, 3, NEVER) as buffer:
        buffer.add(changes("a", "b"))
        assert service.batches == []
        buffer.add(changes("c", "d", "e", "f", "g"))
        eventually(lambda: buffer.waiting() == 1)
        assert service.batches == [["a", "b", "c"], ["d", "e", "f"]]
    assert service.batches[2:] == [["g"]]


def test_few_changes_are_sent_when_the_interval_has_passed_though_nothing_else_comes(journal: Path) -> None:
    service = _Service()
    with SchemaBuffer(service, journal, 100, 0.02) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: service.taken() == ["a"])
        eventually(lambda: buffer.waiting() == 0)
        buffer.add(changes("b"))
        eventually(lambda: service.taken() == ["a", "b"])


def test_adding_does_not_wait_for_a_service_that_hangs(journal: Path) -> None:
    release = threading.Event()

    class Hanging:
        def send(self, _: list[SchemaChange]) -> None:
            assert release.wait(60)

    with SchemaBuffer(Hanging(), journal, 1, 0.01) as buffer:
        assert buffer.add(changes("a")) == 1
        assert buffer.add(changes("b")) == 1
        assert buffer.waiting() == 2
        release.set()


def test_changes_are_on_disk_before_they_are_sent(journal: Path) -> None:
    with SchemaBuffer(_Service(), journal, 100, NEVER) as buffer:
        buffer.add(changes("a", "b"))
        assert [json.loads(line)["path"] for line in journal.read_text().splitlines()] == ["a", "b"]
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600


def test_a_service_that_is_away_gets_them_when_it_is_back(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = _Service()
    service.is_away = True
    with caplog.at_level(logging.WARNING), SchemaBuffer(service, journal, 1, NEVER) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: service.refusals > 2)
        buffer.add(changes("b"))
        service.is_away = False
        eventually(lambda: sorted(service.taken()) == ["a", "b"])
    assert "wait for the metadata service" in caplog.text


def test_what_was_not_taken_is_sent_after_a_restart(journal: Path) -> None:
    service = _Service()
    service.is_away = True
    with SchemaBuffer(service, journal, 100, NEVER) as buffer:
        buffer.add(changes("a", "b"))
    assert service.refusals == 1
    service.is_away = False
    with SchemaBuffer(service, journal, 100, 0.01) as buffer:
        assert buffer.add(changes("b", "c")) == 1
        eventually(lambda: buffer.waiting() == 0)
    assert service.taken() == ["a", "b", "c"]
    assert journal.read_bytes() == b""


def test_a_torn_line_loses_only_itself(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = change("a").model_dump_json()
    journal.write_text(f"{whole}\n{whole[:20]}")
    service = _Service()
    service.is_away = True
    with caplog.at_level(logging.WARNING), SchemaBuffer(service, journal, 100, NEVER) as buffer:
        assert buffer.waiting() == 1
        # As if the crash came again before anything was sent: the new line must stand by itself.
        buffer.add(changes("b"))
    assert "torn line" in caplog.text
    service.is_away = False
    with SchemaBuffer(service, journal, 100, NEVER):
        pass
    assert service.taken() == ["a", "b"]


def test_a_last_line_without_its_end_is_whole_or_nothing(journal: Path) -> None:
    journal.write_text(change("a").model_dump_json())
    service = _Service()
    service.is_away = True
    with SchemaBuffer(service, journal, 100, NEVER) as buffer:
        buffer.add(changes("b"))
    service.is_away = False
    with SchemaBuffer(service, journal, 100, NEVER):
        pass
    assert service.taken() == ["a", "b"]


def test_a_journal_that_cannot_be_written_is_an_error(journal: Path) -> None:
    with SchemaBuffer(_Service(), journal.parent / "none" / "journal", 100, NEVER) as buffer:
        with pytest.raises(StoreError, match="No such file"):
            buffer.add(changes("a"))
        assert buffer.waiting() == 0


def test_what_nobody_expected_does_not_end_the_sending(journal: Path) -> None:
    class Odd(_Service):
        def send(self, sent: list[SchemaChange]) -> None:
            if not self.refusals:
                self.refusals += 1
                raise RuntimeError("odd")
            super().send(sent)

    service = Odd()
    with SchemaBuffer(service, journal, 1, NEVER) as buffer:
        buffer.add(changes("a"))
        eventually(lambda: service.taken() == ["a"])


def test_with_a_real_service(service: Service, journal: Path) -> None:
    with client_of(service.url) as client:
        with SchemaBuffer(client, journal, 100, 0.01) as buffer:
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
    with refused, SchemaBuffer(refused, journal, 100, NEVER) as buffer:
        buffer.add(changes("brand.new"))
    assert b"brand.new" in journal.read_bytes()
