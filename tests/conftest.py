"""Tests of what is native run with it and without."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from idgraph import native

# How long an example takes says nothing on a machine that others use too; `pytest-timeout` ends what hangs.
settings.register_profile("idgraph", deadline=None)
settings.load_profile("idgraph")

TESTS = Path(__file__).parent
WITH_AND_WITHOUT = (
    "merge/",
    "contracts/test_profile_index.py",
    "ingestion/test_commit_stage.py",
    "ingestion/test_map_stage.py",
    "properties/test_detection.py",
    "properties/test_indexes.py",
    "properties/test_map_stage.py",
    "properties/test_merge.py",
    "transforms/test_compiler.py",
    "transforms/test_corpus.py",
    "transforms/test_benchmark_specs.py",
    "transforms/test_examples.py",
    "transforms/test_expressions.py",
    "transforms/test_hostile.py",
    "transforms/test_jolt",
    "transforms/test_limits.py",
    "transforms/test_nesting.py",
    "transforms/test_separators.py",
    "transforms/test_stars.py",
    "transforms/test_times.py",
    "transforms/test_tracing.py",
    "transforms/test_generated_code.py",
)


MINUTES = ("transforms/test_hostile.py", "transforms/test_corpus.py")
"""Files that take that long without Spark."""


def pytest_configure(config: pytest.Config) -> None:
    """pytest-xdist hands files out as they were collected, not those of most tests first: here these are the cheapest."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # `nohup` and background jobs start programs so, and the tests' children would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins first: begun last, it would leave all cores but one idle."""
    items.sort(
        key=lambda item: not (item.get_closest_marker("spark") or _place(item.path).startswith(MINUTES))
    )


def _place(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if native.built is not None and _place(metafunc.definition.path).startswith(WITH_AND_WITHOUT):
        metafunc.fixturenames.append("loops")
        metafunc.parametrize("loops", [True, False], ids=["native", "python"], indirect=True)


def pytest_collection_finish() -> None:
    # The collector would walk thousands of collected tests and all modules again and again.
    gc.collect()
    gc.freeze()


@pytest.fixture
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether this test uses the native loops."""
    native.use(request.param)
    yield
    native.use(True)


class _HastyAsyncio:
    """asyncio for one who sleeps too long."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return asyncio.sleep(seconds / 20)


@pytest.fixture(scope="session", autouse=True)
def uvicorn_stops_at_once() -> Iterator[None]:
    """It looks ten times a second whether it is to stop, then sleeps as long again; hundreds of tests stop one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.server.asyncio", _HastyAsyncio())
        yield
