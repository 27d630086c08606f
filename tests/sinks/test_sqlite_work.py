"""The cost of a call on an SQLite file goes by its request, not by the size of the file.

Counted in steps of SQLite's machine, so nothing depends on a clock. A query for which SQLite finds no better way than
to walk a table answers as it should, and only gets slower and slower.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.dead_letters import DeadLetter, DeadLetterReason
from idgraph.model.store import FragmentWrite, OutboxEntry
from idgraph.model.timelines import DueEntry, PageKey
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.sqlite.profiles import SqliteProfileStore
from transforms.privacy.keys import WrappedKey

FEW, MANY = 300, 6000
FIFTH = [f"{number:05}" for number in range(5)]
ALLOWED = 600
"""Steps by which the larger file may cost more: its trees are deeper, its index has some segments more."""


class Steps:
    """Counts those of all connections that are opened while it is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = sqlite3.connect

        def counted(*given: Any, **more: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*given, **more)
            connection.set_progress_handler(self._step, 1)
            return connection

        monkeypatch.setattr("sinks.sqlite.database.sqlite3.connect", counted)

    def of(self, call: Callable[[], object]) -> int:
        # The first call opens the connection, and fills what is remembered.
        call()
        before = self.count
        call()
        return self.count - before

    def _step(self) -> int:
        self.count += 1
        return 0


def profiles(path: Path, count: int) -> dict[str, Callable[[], object]]:
    store = SqliteProfileStore(path, lambda name: name[::-1].encode())
    for start in range(0, count, FEW):
        numbers = range(start, start + FEW)
        pages = {PageKey("orders", day): b"page" for day in range(3)}
        writes = [
            FragmentWrite(f"{n:05}", 0, b"state", frozenset({f"id:{n}", f"mail:{n % 100}-{n}"}), pages=pages)
            for n in numbers
        ]
        assert store.write(writes) == set()
        store.settle([OutboxEntry(f"{n:05}", 1) for n in numbers if n % 2])
        store.plan([DueEntry(f"{n:05}", n + 1) for n in numbers])

    def write_again(ids: list[str]) -> None:
        found = store.read(ids).values()
        store.write([FragmentWrite(each.id, each.version, b"more", frozenset()) for each in found])

    def write_pages() -> None:
        found = store.read(FIFTH).values()
        changed = {PageKey("orders", day): b"more" for day in (2, 3)}
        store.write(
            [
                FragmentWrite(
                    each.id, each.version, b"more", frozenset(), pages=changed, expired={"orders": 1}
                )
                for each in found
            ]
        )

    last = [f"{n:05}" for n in range(count - 5, count)]
    return {
        "read": lambda: store.read(FIFTH),
        "write": lambda: write_again(FIFTH),
        "write of the newest": lambda: write_again(last),
        "write of what lies apart": lambda: write_again([FIFTH[0], last[0]]),
        "find": lambda: store.find("mail:7-7"),
        "identifiers": lambda: store.identifiers("00003"),
        "a page": lambda: store.scan("00100", 10),
        "outbox": lambda: store.outbox(10),
        "settle": lambda: store.settle([OutboxEntry(each, 9) for each in FIFTH]),
        "read with tombstones": lambda: store.read_with_tombstones(FIFTH),
        "read with shared": lambda: store.read_with_shared(FIFTH),
        "tombstones": lambda: store.tombstones(FIFTH),
        "holdings": lambda: store.summaries(FIFTH),
        "pages": lambda: store.pages([(each, PageKey("orders", 1)) for each in FIFTH]),
        "timelines": lambda: store.timelines(FIFTH, ["orders", "visits"]),
        "write of pages": write_pages,
        "plan": lambda: store.plan([DueEntry(each, 9) for each in FIFTH]),
        "take due": lambda: store.take_due(1_000_000, 5),
        "withdraw": lambda: store.withdraw({"none": 1}),
        "erase": lambda: store.erase(["00009"], 1),
    }


def data_keys(path: Path, count: int) -> dict[str, Callable[[], object]]:
    keys = SqliteDataKeys(path)
    key, other = WrappedKey(1, b"k"), WrappedKey(2, b"l")
    keys.put_absent({f"{n:05}": key if n >= FEW // 2 else other for n in range(count)})

    def hold() -> None:
        with keys.hold(FIFTH):
            pass

    return {
        "get": lambda: keys.get(FIFTH),
        "put absent": lambda: keys.put_absent(dict.fromkeys(FIFTH, key)),
        "replace": lambda: keys.replace(dict.fromkeys(FIFTH, (other, other))),
        "a page of a version": lambda: keys.wrapped_by(1, "", 10),
        "hold": hold,
        "delete": lambda: keys.delete(["00100"]),
    }


def dead_letters(path: Path, count: int) -> dict[str, Callable[[], object]]:
    made = SqliteDeadLetters(path)

    def dead_letter(n: int) -> DeadLetter:
        return DeadLetter(
            f"{n:05}", DeadLetterReason.NOT_JSON, "read", "", f"source{n // 20}", f"file:{n}", None, 1,
            f"batch{n // 20}", "one", b"x", 0,
        )  # fmt: skip

    made.put([dead_letter(n) for n in range(count)])
    return {
        "get": lambda: made.get("00007"),
        "put": lambda: made.put([dead_letter(3)]),
        "settle a batch": lambda: made.settle_batch("batch3", "one"),
        "those of a source": lambda: list(made.scan(source="source3")),
        "first of all": lambda: next(iter(made.scan())),
        "drop": lambda: made.drop(["00021"]),
    }


@pytest.mark.parametrize("kind", [profiles, data_keys, dead_letters])
def test_a_call_costs_no_more_where_more_is_there(
    kind: Callable[[Path, int], dict[str, Callable[[], object]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        steps = Steps(patched)
        few = {name: steps.of(call) for name, call in kind(tmp_path / "few.db", FEW).items()}
        many = {name: steps.of(call) for name, call in kind(tmp_path / "many.db", MANY).items()}
    dearer = {name: (few[name], many[name]) for name in few if many[name] > few[name] + ALLOWED}
    assert dearer == {}
    assert all(few.values()), "each was counted"
