"""A database of its own for each test, and a real service on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from sqlalchemy import create_engine, make_url, text

from idgraph.model.errors import SpecError
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.database import Database, open_database
from metadata_service.storage.tokens import Role
from tests.lanes import long
from tests.servers.postgresql import ServerUnavailableError, postgresql
from tests.tokens import give_token

TOKENS = {role: f"{role}-token-for-the-tests" for role in Role}


class Running(NamedTuple):
    """A service under test, and a caller for each role."""

    url: str
    database_url: str
    database: Database
    admin: httpx.Client
    pipeline: httpx.Client
    reader: httpx.Client
    nobody: httpx.Client


def compile_operations(operations: Any) -> object:
    """Stands in for the compiler of `transforms`."""
    chain = operations if isinstance(operations, list) else [operations]
    for index, operation in enumerate(chain):
        at = f"/{index}" if isinstance(operations, list) else ""
        if not isinstance(operation, dict) or operation.get("operation") not in ("shift", "jmespath"):
            raise SpecError("no such operation", f"{at}/operation", "did you mean shift?")
    return chain


def give_tokens(database: Database) -> None:
    for role, token in TOKENS.items():
        give_token(database, f"the {role}", role, token)


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'metadata.db'}"


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(postgresql())
        except ServerUnavailableError as reason:
            pytest.skip(str(reason))
        yield url


def emptied(url: str) -> str:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return url


@pytest.fixture(params=["sqlite", *long("postgresql")])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, without tables."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return emptied(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = open_database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def open_another(database_url: str) -> Iterator[Callable[[], Database]]:
    """Opens the same database again, as another process would."""
    with ExitStack() as stack:

        def another() -> Database:
            opened = open_database(database_url)
            stack.callback(opened.close)
            return opened

        yield another


@pytest.fixture(scope="session")
def with_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite with all tables and the tokens, which a test can copy."""
    folder = tmp_path_factory.mktemp("with_tables")
    with closing(open_database(sqlite_url(folder))) as database:
        give_tokens(database)
    return folder / "metadata.db"


@pytest.fixture
def service(database_url: str, with_tables: Path) -> Iterator[Running]:
    where = make_url(database_url)
    if where.drivername == "sqlite" and where.database:
        shutil.copy(with_tables, where.database)
    app = create_app(ServiceSettings(database_url), compile_operations)
    database: Database = app.state.service.database
    if where.drivername != "sqlite":
        give_tokens(database)
    with ExitStack() as stack:
        url = stack.enter_context(serving(app))

        def caller(token: str | None) -> httpx.Client:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=60, verify=False))

        yield Running(
            url,
            database_url,
            database,
            caller(TOKENS[Role.ADMIN]),
            caller(TOKENS[Role.PIPELINE]),
            caller(TOKENS[Role.READER]),
            caller(None),
        )


@pytest.fixture
def spec() -> dict[str, Any]:
    """A spec that is accepted."""
    return {
        "name": "payroll",
        "source": "payroll",
        "event_type": "signup",
        "operations": [{"operation": "shift", "spec": {"b": "x", "a": "user.id"}}],
        "identifiers": [{"type": "user_id", "path": "user.id", "primary": True}],
    }
