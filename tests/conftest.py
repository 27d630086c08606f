"""The lanes of the tests, and what holds for all of them."""

from __future__ import annotations

import gc
import os
import signal
import ssl
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.util import LRUCache
from xdist.scheduler import LoadFileScheduling

from tests import lanes

# How long an example takes says nothing on a machine that others use too; `pytest-timeout` ends what hangs. The long lane
# looks for new examples; elsewhere a commit that changes nothing of a test must not change its result.
# Neither clock: a machine may be busy.
settings.register_profile(
    "idgraph",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not lanes.is_thorough(),
)
settings.load_profile("idgraph")


def pytest_configure(config: pytest.Config) -> None:
    """pytest-xdist hands files out as they were collected, not those of most tests first: here these are the cheapest."""
    # By Python's own thresholds the collector takes a sixth of the time, and finds little.
    gc.set_threshold(30_000, 20, 20)
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # `nohup` and background jobs start programs so, and the tests' children would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Hands out units of tests in place of files."""
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = lanes.unit
    return scheduler


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test with its lane. What takes longest begins first where several processes share the tests."""
    for item in items:
        lanes.mark(item)
    items.sort(key=lambda item: not lanes.place(item).startswith(lanes.SLOW_FIRST))


def pytest_collection_finish() -> None:
    # The collector would walk thousands of collected tests and all modules again and again.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def public_authorities_are_read_once() -> Iterator[None]:
    """httpx parses those that everybody trusts for each client, which takes longer than most requests of the tests."""
    made = httpx.create_ssl_context
    trusting_all = cache(made)

    def create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        is_default = (
            verify is True and cert is None and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys()
        )
        return trusting_all() if is_default else made(verify, cert, trust_env)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", create)
        yield


@pytest.fixture(scope="session", autouse=True)
def statements_are_compiled_once() -> Iterator[None]:
    """SQLAlchemy compiles each statement for each engine, and hundreds of tests open a database of their own."""
    compiled: LRUCache[Any, Any] = LRUCache(5000)

    def create(*given: Any, **more: Any) -> Engine:
        engine = create_engine(*given, **more)
        if engine.dialect.name == "sqlite":
            engine._compiled_cache = compiled
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteDialect, "__hash__", lambda _: hash(SQLiteDialect), raising=False)
        patch.setattr(SQLiteDialect, "__eq__", lambda one, other: type(one) is type(other), raising=False)
        patch.setattr("metadata_service.storage.database.create_engine", create)
        yield
