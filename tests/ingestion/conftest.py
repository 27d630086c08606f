"""A real metadata service for what follows it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from idgraph.model.backoff import Backoff
from idgraph.web.server import serving
from ingestion.spark.workers import WorkerResources
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role, revoke_token
from sinks.http.metadata import MetadataClient
from tests.retail import Pipeline, declared, definition
from tests.specs_compiled_once import each_spec_is_compiled_once  # noqa: F401 - a fixture
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


class _IdleCollector:
    """gc for tasks: a worker collects after each one; tests stand for hundreds of tasks, in a process of far more objects."""

    def __getattr__(self, name: str) -> Any:
        return (lambda: 0) if name in {"collect", "freeze", "unfreeze"} else getattr(gc, name)


@pytest.fixture(scope="package", autouse=True)
def tasks_walk_no_objects() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ingestion.spark.worker_process.gc", _IdleCollector())
        yield


@pytest.fixture(scope="package", autouse=True)
def retries_wait_a_tenth() -> Iterator[None]:
    """Of the pauses before retries: a dozen take seconds where what is away stays away."""
    through = Backoff.pause
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backoff, "pause", lambda backoff, attempt: through(backoff, attempt) / 10)
        yield


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """An empty one; many a file has its own in its place."""
    return Pipeline(tmp_path)


@pytest.fixture
def resources(pipeline: Pipeline) -> Iterator[WorkerResources]:
    """Those of the pipeline, with its dead letters open."""
    opened = pipeline.resources()
    with closing(opened.dead_letters):
        yield opened


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
