"""The description of the interpreter in benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.machine import machine, profile_guided

pytestmark = pytest.mark.long


_FLAG = {"PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"CONFIG_ARGS": "'--prefix=/usr' '--enable-optimizations' '--with-lto'", **_FLAG}, "yes"),
        ({"CONFIG_ARGS": "'--prefix=/usr'", "PY_CFLAGS_NODIST": "-std=c11 -fprofile-use", **_FLAG}, "yes"),
        ({"CONFIG_ARGS": "'--prefix=/usr' '--enable-shared'", "PY_CFLAGS": "-O3 -Wall", **_FLAG}, "no"),
        ({"CONFIG_ARGS": "'--prefix=/usr' '--enable-shared'", "PGO_PROF_USE_FLAG": ""}, "not reported"),
        ({}, "not reported"),
    ],
)
def test_profile_guided_builds(settings: dict[str, str], expected: str) -> None:
    assert profile_guided(settings) == expected


def test_the_machine_is_described() -> None:
    assert machine()["profile_guided_python"] in ("yes", "no", "not reported")
