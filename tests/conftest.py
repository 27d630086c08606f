"""Tests of what the native loops do run with them and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from model import native

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
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    place = metafunc.definition.path.relative_to(TESTS).as_posix()
    if native.built is not None and place.startswith(WITH_AND_WITHOUT):
        metafunc.fixturenames.append("loops")
        metafunc.parametrize("loops", [True, False], ids=["native", "python"], indirect=True)


@pytest.fixture
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether this test uses the native loops."""
    native.use(request.param)
    yield
    native.use(True)
