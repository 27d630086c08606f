"""The promises of every keeper of tombstones apart from the store (`idgraph.jobs.erase.erasure.TombstoneKeeper`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from idgraph.jobs.erase.erasure import TombstoneKeeper
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from tests.contracts.implementations import TOMBSTONE_KEEPERS


@pytest.fixture(params=TOMBSTONE_KEEPERS.values(), ids=list(TOMBSTONE_KEEPERS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], TombstoneKeeper]:
    return lambda: request.param(tmp_path)


def read(keeper: TombstoneKeeper) -> dict[bytes, Tombstone]:
    with keeper.alone():
        return keeper.read()


def test_tombstones_are_joined_whoever_appended_them(opened: Callable[[], TombstoneKeeper]) -> None:
    assert read(opened()) == {}
    one, two = opened(), opened()
    with one.alone():
        one.append({b"a" * 16: Tombstone(5, 7), b"b" * 16: Tombstone(1, 1)})
        one.append({b"a" * 16: Tombstone(3, 9)})
    with two.alone():
        two.append({b"c" * 16: Tombstone(1, 1)})
    assert read(one) == {b"a" * 16: Tombstone(5, 9), b"b" * 16: Tombstone(1, 1), b"c" * 16: Tombstone(1, 1)}


def test_a_cancellation_holds_until_the_next_erasure(opened: Callable[[], TombstoneKeeper]) -> None:
    keeper = opened()
    with keeper.alone():
        keeper.append({b"a" * 16: Tombstone(5, 7)})
        keeper.append({b"a" * 16: Tombstone(NO_EPOCH, 8)})
        assert keeper.read() == {b"a" * 16: Tombstone(NO_EPOCH, 8)}
        keeper.append({b"a" * 16: Tombstone(6, 3)})
        assert keeper.read() == {b"a" * 16: Tombstone(6, 8)}


def test_many_are_read(opened: Callable[[], TombstoneKeeper]) -> None:
    keeper = opened()
    many = {bytes([number]) * 16: Tombstone(number, 1) for number in range(120)}
    with keeper.alone():
        keeper.append(many)
    assert read(opened()) == many


def test_one_at_a_time(opened: Callable[[], TombstoneKeeper], caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []

    def other() -> None:
        with opened().alone():
            order.append("other")

    waits = threading.Thread(target=other)
    with opened().alone():
        waits.start()
        while not caplog.messages:
            waits.join(0.01)
        order.append("first")
    waits.join()
    assert order == ["first", "other"]
