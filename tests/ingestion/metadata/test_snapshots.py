"""Following the metadata service: away at the start, away in between, a refused token, a torn cache."""

from __future__ import annotations

import logging
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from idgraph.model.errors import FlowStoppedError, MetadataError, UnauthorizedError
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.snapshot_file import kept_snapshot
from ingestion.metadata import follower as snapshots
from ingestion.metadata.follower import SnapshotFollower
from tests.ingestion.conftest import Service, client_of, running
from tests.retail import attribute, definition, snapshot
from tests.support.patience import eventually


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "LONG_POLL_SECONDS", 0.5)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "snapshot.json"


def nobody() -> str:
    """A URL where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def follow(stack: ExitStack, url: str, cache: Path, token: str | None = None) -> SnapshotFollower:
    client = stack.enter_context(client_of(url, token) if token else client_of(url))
    return stack.enter_context(SnapshotFollower(client, cache))


def test_a_newer_snapshot_comes_without_asking(service: Service, cache: Path) -> None:
    with ExitStack() as stack:
        follower = follow(stack, service.url, cache)
        first = follower.current()
        assert {spec.name for spec in first.snapshot.specs} == {
            "shop-segment",
            "shop-amplitude",
            "shop-orders",
        }
        with client_of(service.url) as admin:
            admin.put_spec(definition("orders", description="another"))
        eventually(lambda: follower.current().snapshot.version > first.snapshot.version)
        assert follower.current().etag != first.etag
        eventually(lambda: kept_snapshot(cache) == follower.current())
        # What was handed out stays as it was (law 4).
        assert first.snapshot.version < follower.current().snapshot.version


def test_a_snapshot_that_is_too_old_begins_no_batch(service: Service, cache: Path) -> None:
    """Found by review: whoever cut a flow off kept a new protection from it for ever."""
    with ExitStack() as stack:
        client = stack.enter_context(client_of(service.url))
        fresh = stack.enter_context(SnapshotFollower(client, cache, 60.0))
        assert fresh.in_force() == fresh.current()
    with ExitStack() as stack:
        client = stack.enter_context(client_of(nobody()))
        unbounded = stack.enter_context(SnapshotFollower(client, cache))
        assert unbounded.in_force() == unbounded.current()
        bounded = stack.enter_context(SnapshotFollower(client, cache, 60.0))
        with pytest.raises(FlowStoppedError, match="max_snapshot_age_seconds"):
            bounded.in_force()


def test_what_is_kept_is_its_owners_only(service: Service, cache: Path) -> None:
    with ExitStack() as stack:
        kept = follow(stack, service.url, cache).current()
        assert kept_snapshot(cache) == kept
        assert stat.S_IMODE(cache.stat().st_mode) == 0o600
        assert not list(cache.parent.glob("*.part"))


def test_away_at_the_start_without_an_earlier_snapshot(cache: Path) -> None:
    with ExitStack() as stack, pytest.raises(MetadataError, match=r"no earlier snapshot in .*snapshot\.json"):
        follow(stack, nobody(), cache)


def test_away_at_the_start_with_an_earlier_snapshot(
    service: Service, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        kept = follow(stack, service.url, cache).current()
    with ExitStack() as stack, caplog.at_level(logging.WARNING):
        assert follow(stack, nobody(), cache).current() == kept
    assert f"continuing with snapshot {kept.snapshot.version} from disk" in caplog.text


def test_away_in_between_and_back(tmp_path: Path, cache: Path) -> None:
    with ExitStack() as outer:
        with running(tmp_path) as service:
            follower = follow(outer, service.url, cache)
            first = follower.current()
        port = urlsplit(service.url).port
        assert port is not None
        assert follower.current() == first
        # Meanwhile, a connection of another test may have the port.
        eventually(lambda: _is_free(port))
        with running(tmp_path, port):
            with client_of(service.url) as admin:
                admin.put_spec(definition("orders"))
            eventually(lambda: follower.current().snapshot.specs)


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


@pytest.mark.parametrize("has_cache", [False, True])
def test_a_refused_token_at_the_start_is_an_error_even_with_a_cache(
    has_cache: bool, service: Service, cache: Path
) -> None:
    if has_cache:
        with ExitStack() as stack:
            follow(stack, service.url, cache)
    with ExitStack() as stack, pytest.raises(UnauthorizedError) as caught:
        follow(stack, service.url, cache, "a-token-nobody-ever-made")
    assert "a-token-nobody-ever-made" not in str(caught.value)


def test_a_token_taken_back_in_between_is_reported_and_the_snapshot_stays(
    service: Service, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack, caplog.at_level(logging.WARNING):
        follower = follow(stack, service.url, cache)
        first = follower.current()
        service.revoke()
        # The handler lists a record before it writes its text: what is waited for is the text.
        eventually(lambda: "stays in force" in caplog.text)
        # The revocation itself is a version, without any change of what holds.
        assert follower.current().snapshot.specs == first.snapshot.specs
    assert any(record.levelno == logging.ERROR for record in caplog.records)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"etag": "x"}', b'{"etag":"x","snapshot":{}}', b"\xff"]
)
def test_a_torn_cache_counts_as_none(content: bytes, cache: Path) -> None:
    cache.write_bytes(content)
    assert kept_snapshot(cache) is None
    with ExitStack() as stack, pytest.raises(MetadataError, match="no earlier snapshot"):
        follow(stack, nobody(), cache)


def test_a_torn_cache_is_replaced(service: Service, cache: Path) -> None:
    cache.write_bytes(b"{")
    with ExitStack() as stack:
        assert follow(stack, service.url, cache).current() == kept_snapshot(cache)


def test_a_cache_that_cannot_be_read_or_written_stops_nothing(
    service: Service, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.mkdir()
    (cache / "full").touch()
    with ExitStack() as stack, caplog.at_level(logging.WARNING):
        follower = follow(stack, service.url, cache)
        with client_of(service.url) as admin:
            admin.put_spec(definition("orders", description="another"))
        before = follower.current().snapshot.version
        eventually(lambda: follower.current().snapshot.version >= before)
        assert kept_snapshot(cache) is None
    assert "cannot be kept" in caplog.text


class _Scripted:
    """A source that gives what it is asked to, then nothing new."""

    def __init__(self, *answers: MetadataSnapshot | Exception) -> None:
        self._answers: Iterator[MetadataSnapshot | Exception] = iter(answers)
        self.asked: list[str | None] = []

    def snapshot(self, etag: str | None, wait: float) -> PinnedSnapshot | None:
        self.asked.append(etag)
        answer = next(self._answers, None)
        if isinstance(answer, Exception):
            raise answer
        return None if answer is None else PinnedSnapshot(f'"{answer.version}"', answer)

    def newer(self, known: MetadataSnapshot, etag: str, wait: float) -> PinnedSnapshot | None:
        assert known.version == int(etag.strip('"'))
        return self.snapshot(etag, wait)


def test_it_asks_with_the_etag_it_has(cache: Path) -> None:
    source = _Scripted(snapshot(1), MetadataError("away"), snapshot(2))
    with SnapshotFollower(source, cache) as follower:
        eventually(lambda: len(source.asked) > 4)
        assert source.asked[:4] == [None, '"1"', '"1"', '"2"']
        assert follower.current().snapshot.version == 2


def test_an_outage_is_reported_once_however_long_and_so_is_its_end(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = [MetadataError("away")] * 5
    source = _Scripted(snapshot(1), *away, MetadataError("full"), *away, snapshot(2))
    with caplog.at_level(logging.INFO), SnapshotFollower(source, cache) as follower:
        eventually(lambda: follower.current().snapshot.version == 2)
    assert caplog.messages == [
        "away; snapshot 1 stays in force",
        "full; snapshot 1 stays in force",
        "away; snapshot 1 stays in force",
        "the metadata service is back",
    ]


def test_what_nobody_expected_does_not_end_the_following(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = _Scripted(snapshot(1), RuntimeError("Canary4711"), snapshot(2))
    with SnapshotFollower(source, cache) as follower, caplog.at_level(logging.WARNING):
        eventually(lambda: follower.current().snapshot.version == 2)
    assert "RuntimeError" in caplog.text
    assert "Canary4711" not in caplog.text


def test_a_snapshot_survives_the_cache_whole(cache: Path) -> None:
    declared = [attribute("a", encryption="searchable"), attribute("b\\.c", "number", conflicts=())]
    whole = snapshot(7, declared=declared)
    with SnapshotFollower(_Scripted(whole), cache):
        kept = kept_snapshot(cache)
    assert kept is not None
    assert kept.snapshot == whole
