"""The promises of every place of the audit log's lines (`idgraph.web.audit.AuditLines`), as the chain over it sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from idgraph.model.errors import StoreError
from idgraph.web.audit import AuditLines, AuditLog
from tests.contracts.implementations import AUDIT_LINES

KEY = b"a key of the tests"


@pytest.fixture(params=AUDIT_LINES.values(), ids=list(AUDIT_LINES))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AuditLines]:
    return lambda: request.param(tmp_path)


def test_an_empty_log_is_whole(opened: Callable[[], AuditLines]) -> None:
    log = AuditLog(opened(), KEY)
    assert (log.verify(), log.newest(5), log.set_aside()) == ((0, "", None), ([], None), None)


def test_several_writers_make_one_chain(opened: Callable[[], AuditLines]) -> None:
    def write(name: int) -> None:
        log = AuditLog(opened(), KEY)
        for number in range(10):
            log.append({"action": "reveal", "writer": name, "number": number}, {"action": "search"})

    threads = [threading.Thread(target=write, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = AuditLog(opened(), KEY)
    assert log.verify()[::2] == (80, None)
    found, _ = log.newest(100, takes=lambda entry: entry["action"] == "reveal")
    assert {(each["writer"], each["number"]) for each in found} == {
        (n, m) for n in range(4) for m in range(10)
    }


def test_the_newest_are_read_backward_in_pages(opened: Callable[[], AuditLines]) -> None:
    log = AuditLog(opened(), b"k" * 32)
    for number in range(0, 50, 2):
        entries = [{"number": each, "long": "x" * (each * 2000)} for each in (number, number + 1)]
        log.append(*({"action": action} | each for action, each in zip("ba", entries, strict=True)))
    seen: list[int] = []
    place = None
    while True:
        found, place = log.newest(7, place, lambda entry: entry["action"] == "a")
        seen += [each["number"] for each in found]
        assert all("mac" not in each for each in found)
        if place is None:
            break
    assert seen == list(range(49, 0, -2))
    assert log.verify().entries == 50


@pytest.mark.parametrize("size", [1 << 16, 3 << 20])
def test_a_long_line_does_not_break_the_chain(opened: Callable[[], AuditLines], size: int) -> None:
    log = AuditLog(opened(), KEY)
    log.append({"action": "reveal", "attributes": [f"{each:x}" for each in range(size // 5)]})
    log.append({"action": "reveal", "number": 5})
    assert log.verify()[::2] == (2, None)


def test_another_key_does_not_continue_a_log(opened: Callable[[], AuditLines]) -> None:
    AuditLog(opened(), b"a" * 32).append({"action": "one"})
    for _ in range(2):
        with pytest.raises(StoreError, match="another keyring"):
            AuditLog(opened(), b"b" * 32).append({"action": "two"})
    AuditLog(opened(), b"a" * 32).append({"action": "three"})
    assert AuditLog(opened(), b"a" * 32).verify().entries == 2
    assert AuditLog(opened(), b"b" * 32).set_aside() is not None
    AuditLog(opened(), b"b" * 32).append({"action": "four"}, {"action": "five"})
    log = AuditLog(opened(), b"b" * 32)
    assert log.verify()[::2] == (2, None)
    assert [each["action"] for each in log.newest(9)[0]] == ["five", "four"]
