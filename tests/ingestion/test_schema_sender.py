"""What the metadata service refuses for good is set aside, and the rest is taken."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest

from idgraph.model.attributes import DataType
from idgraph.model.errors import MetadataError, NotFoundError, RefusedError, StoreError
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange
from idgraph.web.server import serving
from ingestion.metadata.schema_buffer import SchemaSender
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from tests.ingestion.conftest import TOKEN, client_of
from tests.tokens import give_token


def changes(*paths: str) -> list[SchemaChange]:
    return [
        SchemaChange(path=path, data_type=DataType.STRING, source="shop", first_event="file:x#1")
        for path in paths
    ]


class _Service:
    """Refuses requests with a `bad` path as a whole, and gives back `odd` ones; at most `most` at once."""

    def __init__(self, most: int = 1000) -> None:
        self.taken: list[str] = []
        self._most = most

    def send(self, sent: list[SchemaChange]) -> list[RefusedSchemaChange]:
        if len(sent) > self._most:
            raise RefusedError("HTTP 413")
        if any(each.path.startswith("bad") for each in sent):
            raise RefusedError("HTTP 422")
        self.taken += [each.path for each in sent if not each.path.startswith("odd")]
        return [RefusedSchemaChange(each, "reserved") for each in sent if each.path.startswith("odd")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "refused.jsonl"


def kept(file: Path) -> list[tuple[str, str]]:
    lines = map(json.loads, filter(None, file.read_text().splitlines()))
    return [(line["path"], line["reason"]) for line in lines]


def test_what_is_too_large_together_goes_in_parts(file: Path) -> None:
    service = _Service(most=3)
    names = [f"p{number}" for number in range(10)]
    SchemaSender(service, file).send(changes(*names))
    assert service.taken == names
    assert not file.exists()


def test_the_refused_are_set_aside_with_path_and_reason_and_the_others_taken(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = _Service()
    sender = SchemaSender(service, file)
    with caplog.at_level(logging.WARNING):
        sender.send(changes("a", "bad\nname", "odd", "b"))
    assert sorted(service.taken) == ["a", "b"]
    assert kept(file) == [("bad\nname", "HTTP 422"), ("odd", "reserved")]
    assert sender.refused == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert r'"bad\nname" (string): HTTP 422' in caplog.text


def test_each_is_kept_once_in_a_run(file: Path) -> None:
    sender = SchemaSender(_Service(), file)
    for paths in (("odd",), ("odd", "odd.too"), ("odd",)):
        sender.send(changes(*paths))
    assert [path for path, _ in kept(file)] == ["odd", "odd.too"]


@pytest.mark.parametrize("error", [MetadataError("away"), NotFoundError("HTTP 404")])
def test_a_service_that_is_away_or_elsewhere_refuses_no_change(error: MetadataError, file: Path) -> None:
    class Away:
        def send(self, _: list[SchemaChange]) -> list[RefusedSchemaChange]:
            raise error

    with pytest.raises(type(error)):
        SchemaSender(Away(), file).send(changes("a"))
    assert not file.exists()


def test_without_a_place_for_the_refused_nothing_is_lost_in_silence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        SchemaSender(_Service(), tmp_path / "none" / "refused").send(changes("odd"))


@pytest.mark.parametrize("how", ["moved", "emptied"])
def test_a_full_file_takes_no_more_until_it_is_moved_away(
    file: Path, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ingestion.metadata.schema_journal.MOST_BYTES", 200)
    sender = SchemaSender(_Service(), file)
    for number in range(5):
        sender.send(changes(f"odd.{number}", f"odd.{number}.too"))
    assert [path for path, _ in kept(file)] == ["odd.0", "odd.0.too"]
    assert (sender.refused, sender.left_out) == (10, 8)
    assert len([each for each in caplog.messages if "takes no more" in each]) == 1
    if how == "moved":
        file.rename(file.with_suffix(".repaired"))
    else:
        file.write_bytes(b"")
    sender.send(changes("odd.1", "odd.9"))
    assert [path for path, _ in kept(file)] == ["odd.1", "odd.9"]


def test_a_write_that_failed_half_way_is_made_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = SchemaSender(_Service(), file)
    sender.send(changes("odd"))

    def full(_: int) -> None:
        with file.open("r+b") as stream:
            stream.truncate(file.stat().st_size - 20)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("ingestion.metadata.schema_journal.os.fsync", full)
        with pytest.raises(StoreError, match="No space"):
            sender.send(changes("odd.too"))
    sender.send(changes("odd.too", "odd.more"))
    lines = [line for line in file.read_bytes().splitlines() if line]
    assert [json.loads(line)["path"] for line in (lines[0], *lines[2:])] == ["odd", "odd.too", "odd.more"]


def test_with_a_real_service_that_takes_only_small_bodies(tmp_path: Path, file: Path) -> None:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path}/metadata.db", max_body_bytes=600))
    give_token(app.state.service.database, "admin", Role.ADMIN, TOKEN)
    with serving(app) as url, client_of(url) as client:
        sender = SchemaSender(client, file)
        sender.send(changes(*(f"p{number}" for number in range(20)), "_event.x", "much." * 200))
        assert len(list(client.search_attributes())) == 20
    assert sender.refused == 2
    assert [path[:8] for path, _ in kept(file)] == ["_event.x", "much.muc"]


def test_a_line_that_a_crash_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    file = tmp_path / "refused"
    file.write_bytes(b'{"path": "torn", "da')
    SchemaSender(_Service(), file).send(changes("odd"))
    torn, whole = file.read_bytes().splitlines()
    assert torn == b'{"path": "torn", "da'
    assert json.loads(whole)["path"] == "odd"
