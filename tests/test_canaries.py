"""The search for leaks sees what it is meant to see."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.canaries import examples_of_leaks, seen

CANARIES = ["canary.kahuna@example.com", "Zitronengelbé Kanarienvogel", "4711 Canaryrow Boulevard"]


@pytest.mark.parametrize("canary", CANARIES)
def test_a_leak_would_be_seen(canary: str) -> None:
    for number, leak in enumerate(examples_of_leaks(canary)):
        assert seen(leak, CANARIES) == [canary], number


@pytest.mark.parametrize("canary", CANARIES)
def test_a_leak_in_parquet_would_be_seen(canary: str) -> None:
    stream = BytesIO()
    pq.write_table(pa.table({"a": [canary] * 50}), stream, compression="zstd")
    assert seen(stream.getvalue(), CANARIES) == [canary]


def test_nothing_is_seen_where_nothing_is() -> None:
    assert seen(b"canary" * 100, CANARIES) == []
