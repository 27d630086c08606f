"""Every implementation of the profile store, for the suites of what it promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from merge.store import ProfileStore
from tests.contracts.implementations import PROFILE_STORES, Implementation

DURABLE = [each for each in PROFILE_STORES if each.durable]


def name(implementation: Implementation[ProfileStore]) -> str:
    return implementation.name


@pytest.fixture(params=PROFILE_STORES, ids=name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProfileStore]:
    request.param.require()
    opened: ProfileStore = request.param.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def many(request: pytest.FixtureRequest) -> int:
    """Many fragments, for the store of this test."""
    return next(each.many for each in PROFILE_STORES if each.name in request.node.name)


@pytest.fixture(params=DURABLE, ids=name)
def durable(request: pytest.FixtureRequest) -> Implementation[ProfileStore]:
    implementation: Implementation[ProfileStore] = request.param
    implementation.require()
    return implementation
