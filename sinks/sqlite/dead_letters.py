"""Dead letters in one SQLite file, each sealed by a key in another one.

Both change while this file has its one writer, so that nobody is between the two: a key is there before its dead letter,
and gone before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from idgraph.model.dead_letters import FRAGMENT, DeadLetter, DeadLetterReason
from idgraph.model.errors import StoreError
from sinks.sqlite.database import SqliteFile, among
from sinks.sqlite.schema import Schema
from transforms.privacy.dead_letter_keys import DeadLetterKeys

_OF_FRAGMENTS = f"substr(position, 1, {len(FRAGMENT)}) = '{FRAGMENT}'"
# Columns in the order of DeadLetter's fields.
_SCHEMA = Schema(
    application_id=0x69646764,
    migrations=(
        (
            """CREATE TABLE dead_letters (
                id TEXT NOT NULL UNIQUE,
                reason TEXT NOT NULL,
                stage TEXT NOT NULL,
                detail TEXT NOT NULL,
                source TEXT NOT NULL,
                position TEXT NOT NULL,
                spec TEXT,
                snapshot_version INTEGER NOT NULL,
                batch TEXT NOT NULL,
                attempt TEXT NOT NULL,
                payload BLOB NOT NULL,
                set_aside_at INTEGER NOT NULL)""",
            "CREATE INDEX dead_letters_by_reason ON dead_letters (reason, id)",
            "CREATE INDEX dead_letters_by_source ON dead_letters (source, id)",
            "CREATE INDEX dead_letters_by_batch ON dead_letters (batch)",
        ),
        (f"CREATE INDEX dead_letters_of_fragments ON dead_letters (position) WHERE {_OF_FRAGMENTS}",),
        ("CREATE INDEX dead_letters_by_age ON dead_letters (set_aside_at, id)",),
    ),
)

_PAGE = 100
_PAGE_BYTES = 4 << 20
"""Bytes of payloads: a dead letter may hold many megabytes. A page ends at either."""


class SqliteDeadLetters:
    """`DeadLetters` in one file, made when first used, for the owner only."""

    def __init__(self, path: str | Path, keys: DeadLetterKeys | None = None) -> None:
        """Without `keys`, which are closed with it, payloads are stored as they come."""
        self._file = SqliteFile(path, _SCHEMA, StoreError)
        self._keys = keys

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        def insert_rows(connection: sqlite3.Connection) -> None:
            # REPLACE finds the old dead letter by the unique id.
            connection.executemany(
                "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                self._keys.seal(dead_letters) if self._keys else dead_letters,
            )

        if dead_letters:
            self._file.write(insert_rows)

    def settle_batch(self, batch: str, attempt: str, source: str | None = None) -> dict[str, str]:
        def delete_earlier_attempts(connection: sqlite3.Connection) -> dict[str, str]:
            settled = dict(
                connection.execute(
                    "DELETE FROM dead_letters WHERE batch = ? AND attempt <> ? AND source = ifnull(?, source) "
                    "RETURNING id, position",
                    (batch, attempt, source),
                ).fetchall()
            )
            self._destroy(list(settled))
            return {
                dead_letter: position
                for dead_letter, position in settled.items()
                if position.startswith(FRAGMENT)
            }

        return self._file.write(delete_earlier_attempts)

    def get(self, dead_letter_id: str) -> DeadLetter | None:
        found = self._dead_letters("WHERE id = ?", [dead_letter_id])
        return found[0] if found else None

    def scan(self, reason: str | None = None, source: str | None = None) -> Iterator[DeadLetter]:
        """A page in memory at a time; dead letters put or dropped meanwhile may or may not be seen."""
        wanted = [(column, value) for column, value in (("reason", reason), ("source", source)) if value]
        where = "".join(f"{column} = ? AND " for column, _ in wanted)
        after = ""
        while page := self._dead_letters(
            f"WHERE {where}id > ? ORDER BY id LIMIT {_PAGE}", [*(value for _, value in wanted), after]
        ):
            yield from page
            after = page[-1].id

    def counts(self, source: str | None = None) -> dict[str, int]:
        return dict(
            self._file.read(
                lambda connection: connection.execute(
                    "SELECT reason, count(*) FROM dead_letters WHERE :source IS NULL OR source = :source "
                    "GROUP BY reason ORDER BY reason",
                    {"source": source or None},
                ).fetchall()
            )
        )

    def newest(self, most: int, before: tuple[int, str] | None = None) -> list[DeadLetter]:
        columns = ", ".join("x''" if name == "payload" else name for name in DeadLetter._fields)
        behind = "WHERE (set_aside_at, id) < (?, ?) " if before else ""
        return self._file.read(
            lambda connection: [
                DeadLetter(row[0], DeadLetterReason(row[1]), *row[2:])
                for row in connection.execute(
                    f"SELECT {columns} FROM dead_letters {behind}ORDER BY set_aside_at DESC, id DESC LIMIT ?",  # noqa: S608 - ours only
                    [*(before or ()), most],
                )
            ]
        )

    def at(self, positions: Collection[str]) -> dict[str, str]:
        query = f"SELECT id, position FROM dead_letters WHERE {_OF_FRAGMENTS} AND position"  # noqa: S608 - ours only
        return self._file.read(lambda connection: dict(among(connection, query, positions)))

    def drop(self, ids: Sequence[str]) -> int:
        def delete_rows(connection: sqlite3.Connection) -> int:
            self._destroy(ids)
            return connection.executemany(
                "DELETE FROM dead_letters WHERE id = ?", [(each,) for each in ids]
            ).rowcount

        return self._file.write(delete_rows) if ids else 0

    def compact(self) -> None:
        if self._keys:
            self._keys.compact()
        self._file.rewrite()

    def close(self) -> None:
        if self._keys:
            self._keys.close()
        self._file.close()

    def _destroy(self, ids: Sequence[str]) -> None:
        if self._keys and ids:
            self._keys.destroy(ids)

    def _dead_letters(self, where: str, values: list[str]) -> list[DeadLetter]:
        def read_rows(connection: sqlite3.Connection) -> list[DeadLetter]:
            with closing(connection.execute(f"SELECT * FROM dead_letters {where}", values)) as rows:  # noqa: S608 - ours only
                return _page(DeadLetter(row[0], DeadLetterReason(row[1]), *row[2:]) for row in rows)

        dead_letters = self._file.read(read_rows)
        return self._keys.open(dead_letters) if self._keys else dead_letters


def _page(dead_letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The first of them, up to the one with which they are of so many bytes."""
    page: list[DeadLetter] = []
    size = 0
    for dead_letter in dead_letters:
        page.append(dead_letter)
        size += len(dead_letter.payload)
        if size >= _PAGE_BYTES:
            break
    return page
