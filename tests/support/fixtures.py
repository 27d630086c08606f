"""Fixtures for packages whose conftest imports them."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from idgraph import native
from idgraph.model.backoff import Backoff
from ingestion.spark.workers import WorkerResources
from tests.retail import Pipeline
from transforms import compile_spec
from transforms.spec.chain import Transform


@pytest.fixture(scope="package", autouse=True)
def each_spec_is_compiled_once() -> Iterator[None]:
    """A spec that was compiled before gives the same function, which may be shared."""
    known: dict[tuple[bool, str], Transform] = {}

    def compiled(operations: Any) -> Transform:
        key = native.programs is not None, json.dumps(operations)
        if key not in known:
            known[key] = compile_spec(operations)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transforms.spec.mapping.compile_spec", compiled)
        yield


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
