"""Every implementation of the profile store, for the suites of what it promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.model.store import ProfileStore
from tests.contracts.implementations import PROFILE_STORES, Implementation

DURABLE = [each for each in PROFILE_STORES if each.durable]


@pytest.fixture(params=PROFILE_STORES, ids=str)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProfileStore]:
    implementation: Implementation[ProfileStore] = request.param
    with implementation.opened(tmp_path) as store:
        yield store


@pytest.fixture
def many(request: pytest.FixtureRequest) -> int:
    """Many fragments, for the store of this test."""
    return next(each.many for each in PROFILE_STORES if each.name in request.node.name)


@pytest.fixture(params=DURABLE, ids=str)
def durable(request: pytest.FixtureRequest) -> Implementation[ProfileStore]:
    implementation: Implementation[ProfileStore] = request.param
    implementation.require()
    return implementation
