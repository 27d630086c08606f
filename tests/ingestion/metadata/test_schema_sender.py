"""What the metadata service refuses for good is logged, and the rest is taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from idgraph.model.attributes import DataType
from idgraph.model.errors import MetadataError, NotFoundError, RefusedError
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange
from idgraph.web.server import serving
from ingestion.metadata.schema_buffer import MAX_REPORTED, SchemaSender
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


def test_what_is_too_large_together_goes_in_parts() -> None:
    service = _Service(most=3)
    names = [f"p{number}" for number in range(10)]
    SchemaSender(service).send(changes(*names))
    assert service.taken == names


def test_the_refused_are_logged_with_path_and_reason_and_the_others_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = _Service()
    sender = SchemaSender(service)
    with caplog.at_level(logging.WARNING):
        sender.send(changes("a", "bad\nname", "odd", "b"))
    assert sorted(service.taken) == ["a", "b"]
    assert sender.refused == 2
    assert r'"bad\nname" (string): HTTP 422' in caplog.text
    assert '"odd" (string): reserved' in caplog.text


def test_of_many_that_are_refused_the_log_has_some_and_the_number(caplog: pytest.LogCaptureFixture) -> None:
    sender = SchemaSender(_Service())
    with caplog.at_level(logging.WARNING):
        sender.send(changes(*(f"odd{number}" for number in range(MAX_REPORTED + 7))))
    assert sender.refused == MAX_REPORTED + 7
    assert len(caplog.messages) == MAX_REPORTED + 1
    assert "7 more" in caplog.messages[-1]


@pytest.mark.parametrize("error", [MetadataError("away"), NotFoundError("HTTP 404")])
def test_a_service_that_is_away_or_elsewhere_refuses_no_change(error: MetadataError) -> None:
    class Away:
        def send(self, _: list[SchemaChange]) -> list[RefusedSchemaChange]:
            raise error

    with pytest.raises(type(error)):
        SchemaSender(Away()).send(changes("a"))


def test_with_a_real_service_that_takes_only_small_bodies(tmp_path: Path) -> None:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path}/metadata.db", max_body_bytes=600))
    give_token(app.state.service.database, "admin", Role.ADMIN, TOKEN)
    with serving(app) as url, client_of(url) as client:
        sender = SchemaSender(client)
        sender.send(changes(*(f"p{number}" for number in range(20)), "_event.x", "much." * 200))
        assert len(list(client.search_attributes())) == 20
    assert sender.refused == 2
