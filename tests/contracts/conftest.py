"""Every implementation of the profile store, for the suites of what it promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from idgraph.model.store import ProfileStore
from tests.contracts.implementations import PROFILE_STORES, Implementation, T

DURABLE = [each for each in PROFILE_STORES if each.durable]


def long_on_servers(implementations: Iterable[Implementation[T]]) -> list[Implementation[T] | ParameterSet]:
    """Parameters of a test; those whose data a server holds play in the long lane only."""
    return [each if each.in_files else pytest.param(each, marks=pytest.mark.long) for each in implementations]


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
