"""A spec compiles before the edit that stores or activates it: others write meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.database import Database
from metadata_service.storage.tokens import Role
from tests.metadata_service.conftest import TOKENS
from tests.tokens import give_token

Spec = dict[str, Any]


class Compiler:
    """Does something else while it compiles."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        self.calls = 0

    def __call__(self, operations: Any) -> object:
        self.calls += 1
        self.meanwhile()
        return operations


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def admin(database_url: str, compiler: Compiler) -> Iterator[httpx.Client]:
    app = create_app(ServiceSettings(database_url), compiler)
    give_token(app.state.service.database, "the admin", Role.ADMIN, TOKENS[Role.ADMIN])
    headers = {"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}
    with (
        serving(app) as url,
        httpx.Client(base_url=url, headers=headers, timeout=60, verify=False) as client,
    ):
        yield client


def test_the_database_can_be_written_while_a_spec_compiles(
    admin: httpx.Client, compiler: Compiler, open_another: Callable[[], Database], spec: Spec
) -> None:
    database = open_another()

    def write() -> None:
        with database.write():
            pass

    compiler.meanwhile = write
    assert admin.put("/v1/specs/payroll", json=spec).status_code == 201
    assert admin.post("/v1/specs/payroll/status", json={"status": "active"}).status_code == 200
    assert admin.post("/v1/specs/payroll/status", json={"status": "active", "version": 1}).status_code == 200
    assert compiler.calls == 3


def test_the_latest_version_is_activated_only_if_it_is_the_one_that_compiled(
    admin: httpx.Client, compiler: Compiler, spec: Spec
) -> None:
    admin.put("/v1/specs/payroll", json=spec)

    def save(description: str) -> None:
        compiler.meanwhile = lambda: None  # what is saved compiles too
        assert admin.put("/v1/specs/payroll", json=spec | {"description": description}).status_code == 200

    compiler.meanwhile = lambda: save("another")
    refused = admin.post("/v1/specs/payroll/status", json={"status": "active"})
    assert refused.status_code == 409, refused.text
    assert "saved meanwhile" in refused.text
    assert admin.get("/v1/specs/payroll").json()["active_version"] is None
    compiler.meanwhile = lambda: save("a third")
    named = admin.post("/v1/specs/payroll/status", json={"status": "active", "version": 1})
    assert named.json()["active_version"] == 1
