"""A real metadata service for what follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role, revoke_token
from sinks.http.metadata import MetadataClient
from tests.retail import declared, definition
from tests.support.fixtures import (  # noqa: F401
    each_spec_is_compiled_once,
    pipeline,
    resources,
    retries_wait_a_tenth,
    tasks_walk_no_objects,
)
from tests.tokens import give_token

TOKEN = "admin-token-for-the-tests"


class Service(NamedTuple):
    """Where it is, and how its token is taken back."""

    url: str
    revoke: Callable[[], None]


@contextmanager
def running(folder: Path, port: int = 0) -> Iterator[Service]:
    """Serve the database of a folder."""
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
    database = app.state.service.database
    give_token(database, "admin", Role.ADMIN, TOKEN)
    with serving(app, port=port) as url:
        yield Service(url, lambda: revoke_token(database, "admin"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with the retail example's specs and attributes."""
    with running(tmp_path) as started:
        with client_of(started.url) as client:
            for attribute in declared():
                client.put_attribute(attribute)
            for name in ("segment", "amplitude", "orders"):
                client.put_spec(definition(name))
        yield started


def client_of(url: str, token: str = TOKEN) -> MetadataClient:
    return MetadataClient(url, token)
