"""The rows of documents in the index's file: written with their segment, compared, deleted.

Each function runs within one transaction of the caller's, on the tables of one version of the index.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from idgraph.model.errors import DamagedStateError
from idgraph.model.index import IndexDocument
from merge.documents import EncodedFields
from sinks.index_values import is_unicode
from sinks.sqlite.database import chunks, marks
from sinks.sqlite.index import segments as sqlite_index_segments
from sinks.sqlite.index.blocks import Block, build
from sinks.sqlite.index.paths import IndexPaths
from sinks.sqlite.index.tables import IN_USE, TOMBSTONES, Tables
from sinks.sqlite.index.tokens import Tokenizer
from sinks.sqlite.tombstones import SqliteTombstones

_CONTENT_BYTES = 8


class Prepared(NamedTuple):
    """A document as the file takes it. `content` is a hash of its tokens: equal ones are found by the same."""

    id: str
    version: int
    content: bytes
    tokens: bytes


class Stored(NamedTuple):
    """A row of `documents`. `content` is None where an earlier idgraph wrote it."""

    id: str
    number: int
    version: int
    content: bytes | None


def prepared(documents: Sequence[IndexDocument], paths: IndexPaths) -> tuple[list[Prepared], dict[str, str]]:
    """Of each id the newest document, sorted; and the reason by id for those that cannot be put."""
    preparing = _Preparing()
    fields = [each for each in documents if not isinstance(each.fields, EncodedFields)]
    tokenizer = paths.learn(fields)
    for each in fields:
        preparing.add_learnt(each, tokenizer)
    # What paths a state has shows when its tokens are made.
    left = preparing.add_states(
        [each for each in documents if isinstance(each.fields, EncodedFields)], tokenizer
    )
    some = _LEARNT_FIRST
    while left:
        tokenizer = paths.learn(left[:some])
        for each in left[:some]:
            preparing.add_learnt(each, tokenizer)
        left = preparing.add_states(left[some:], tokenizer)
        some *= 4
    return sorted(preparing.newest.values()), preparing.refused


_LEARNT_FIRST = 64
"""Of how many documents the paths are learnt at first: most others have the same ones."""


class _Preparing:
    """Documents as they are made ready: the newest of each id, and those that cannot be put."""

    def __init__(self) -> None:
        self.newest: dict[str, Prepared] = {}
        self.refused: dict[str, str] = {}

    def add_states(self, documents: Sequence[IndexDocument], tokenizer: Tokenizer) -> list[IndexDocument]:
        """Documents that are states' bytes still; gives those that are odd or have a path that is not known."""
        made = tokenizer.tokens_of_states(
            [fields for _, _, fields in documents if isinstance(fields, EncodedFields)]
        )
        left: list[IndexDocument] = []
        for document, tokens in zip(documents, made, strict=True):
            if tokens is not None and (document.id.isascii() or is_unicode(document.id)):
                self._take(document, tokens)
            else:
                left.append(document)
        return left

    def _add(self, document: IndexDocument, tokenizer: Tokenizer) -> bool:
        """False for a document with a path that is not known."""
        name, _, fields = document
        try:
            name.isascii() or name.encode()
            if isinstance(fields, EncodedFields):
                tokens = tokenizer.tokens_of_state(fields)
            else:
                tokens = tokenizer.tokens(_by_path(fields))
        except KeyError:
            return False
        except (TypeError, DamagedStateError) as error:
            self.refused[name] = str(error)
        except UnicodeEncodeError:
            self.refused[name] = _NO_UNICODE
        else:
            self._take(document, tokens)
        return True

    def _take(self, document: IndexDocument, tokens: bytes) -> None:
        name, version, _ = document
        present = self.newest.get(name)
        if present is None or present.version <= version:
            content = hashlib.sha256(tokens).digest()[:_CONTENT_BYTES]
            self.newest[name] = _new(Prepared, (name, version, content, tokens))

    def add_learnt(self, document: IndexDocument, tokenizer: Tokenizer) -> None:
        """A document all of whose paths were learnt, but for those that are no valid Unicode."""
        if not self._add(document, tokenizer):
            try:
                # No path of what cannot be read was learnt.
                len(document.fields)
            except DamagedStateError as error:
                self.refused[document.id] = str(error)
            else:
                self.refused[document.id] = _NO_UNICODE


_NO_UNICODE = "text that is not valid Unicode"
# What a NamedTuple's own constructor does, without its call: there is one for each document.
_new: Callable[[type[Prepared], tuple[str, int, bytes, bytes]], Prepared] = tuple.__new__


def _by_path(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """So that equal documents have equal tokens. Most come in this order: it is that of a state's bytes."""
    paths = list(fields)
    ordered = sorted(paths)
    return fields if paths == ordered else {path: fields[path] for path in ordered}


def stored(connection: sqlite3.Connection, ids: Sequence[str], tables: Tables = IN_USE) -> Iterator[Stored]:
    """The rows of those of these ids that have one."""
    for chunk in chunks(ids):
        query = f"SELECT id, number, version, content FROM documents@ WHERE id IN ({marks(len(chunk))})"  # noqa: S608 - marks only
        yield from map(Stored._make, connection.execute(tables(query), chunk))


def put(
    connection: sqlite3.Connection,
    tables: Tables,
    given: Sequence[Prepared],
    blocks: Sequence[Block],
    tombstones: SqliteTombstones,
) -> None:
    """Write what is neither older than what is there nor of a version that was erased. `blocks` are those of all
    that are given."""
    ids = [each.id for each in given]
    present = {each.id: each for each in stored(connection, ids, tables)}
    forbidden = {each: old.version - 1 for each, old in present.items()}
    for name, tombstone in tombstones.of(tables(TOMBSTONES)).find(connection, ids).items():
        forbidden[name] = max(forbidden.get(name, tombstone.version), tombstone.version)
    kept = given
    if forbidden:
        kept = [each for each in given if each.id not in forbidden or each.version > forbidden[each.id]]
    if not kept:
        return
    if len(kept) < len(given):
        # What was erased must not stand in the file either.
        blocks = build([each.tokens for each in kept])
    _write(connection, tables, kept, present, blocks)


def delete(connection: sqlite3.Connection, rows: Sequence[Stored], tables: Tables = IN_USE) -> None:
    """Take documents out."""
    numbers = {each.number for each in rows}
    if numbers:
        sqlite_index_segments.write_tombstones(connection, numbers, tables)
        connection.executemany(
            tables("DELETE FROM documents@ WHERE number = ?"), [(each,) for each in numbers]
        )


def _write(
    connection: sqlite3.Connection,
    tables: Tables,
    documents: Sequence[Prepared],
    present: Mapping[str, Stored],
    blocks: Sequence[Block],
) -> None:
    first = sqlite_index_segments.next_number(connection, tables)
    inserts: list[tuple[int, str, int, bytes]] = []
    updates: list[tuple[int, int, bytes, int]] = []
    for number, document in enumerate(documents, first):
        old = present.get(document.id)
        if old is None:
            inserts.append((number, document.id, document.version, document.content))
        else:
            updates.append((number, document.version, document.content, old.number))
    if updates:
        sqlite_index_segments.write_tombstones(connection, (old for *_, old in updates), tables)
    connection.executemany(
        tables("UPDATE documents@ SET number = ?, version = ?, content = ? WHERE number = ?"), updates
    )
    connection.executemany(tables("INSERT INTO documents@ VALUES (?, ?, ?, ?)"), inserts)
    sqlite_index_segments.write(connection, first, len(documents), blocks, tables)
    sqlite_index_segments.merge(connection, tables)
