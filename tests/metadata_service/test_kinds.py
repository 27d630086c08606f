"""A kind of versioned documents is a model and a line: its routes, its versions and its decisions follow."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import Field
from sqlalchemy.orm import Session

from idgraph.model.documents import FrozenDocument
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.routes.documents import routes_of
from metadata_service.api.service import ServiceSettings
from metadata_service.kinds import KINDS
from metadata_service.storage.tokens import Role
from metadata_service.storage.versions import VersionedDocuments
from tests.metadata_service.made_tokens import create_token


class Gauge(FrozenDocument):
    """A document that weakens protection where its level falls."""

    name: str
    level: int = 0


class GaugeDocument(Gauge):
    version: int = Field(ge=1)


def check(_session: Session, stated: Gauge) -> GaugeDocument:
    return GaugeDocument(**dict(stated), version=1)


def opens(session: Session, wanted: GaugeDocument) -> list[str]:
    known = GAUGES.held(session, wanted.name)
    return [f"{wanted.name}: lower"] if known and wanted.level < known.document.level else []


GAUGES = VersionedDocuments(cast(Any, "gauge"), Gauge, GaugeDocument, check, opens=opens)


def test_a_new_kind_has_routes_versions_and_a_second_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "gauge", GAUGES)
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    app.include_router(routes_of(GAUGES))
    database = app.state.service.database
    with ExitStack() as stack:
        where = stack.enter_context(serving(app))

        def client(name: str) -> httpx.Client:
            headers = {"Authorization": f"Bearer {create_token(database, name, Role.ADMIN)}"}
            opened = httpx.Client(base_url=where, headers=headers, timeout=60, trust_env=False, verify=False)
            return stack.enter_context(opened)

        ann, bob = client("ann"), client("bob")
        url = "/v1/gauges/oil"
        first = ann.put(f"{url}?reason=new", json={"name": "oil", "level": 5})
        assert (first.status_code, first.json()) == (201, {"name": "oil", "level": 5, "version": 1})
        waits = ann.put(url, json={"name": "oil", "level": 3}, headers={"If-Match": first.headers["ETag"]})
        assert (waits.status_code, waits.json()["weakens"]) == (202, ["oil: lower"])
        assert ann.post(f"{waits.headers['Location']}/approve", json={}).status_code == 409
        assert bob.post(f"{waits.headers['Location']}/approve", json={}).status_code == 200
        assert ann.get(url).json() == {"name": "oil", "level": 3, "version": 2}
        assert ann.get(f"{url}/versions/1").json()["reason"] == "new"
        assert [each["version"] for each in ann.get(f"{url}/versions").json()["items"]] == [2, 1]
        assert [each["name"] for each in ann.get("/v1/gauges").json()["items"]] == ["oil"]
        assert ann.put(url, json={"name": "oil"}, headers={"If-None-Match": "*"}).status_code == 412
