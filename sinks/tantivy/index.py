"""The embedded profile index: a folder of tantivy's, which several processes share.

See docs/adr/0035-tantivy.md for why, and `sinks.tantivy.documents` for what a document is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from tantivy import FieldType, Index, Searcher
from tantivy import Query as Compiled

from idgraph.model.index import FacetCount, IndexDocument, Indexed, SearchPage
from idgraph.model.index_versions import VersionState
from idgraph.model.queries import Order, Query
from idgraph.model.tombstones import TombstoneNames
from sinks.index_values import check_text
from sinks.matching import matches
from sinks.tantivy.documents import SCHEMA, Prepared, hash_of, prepared, restored, tombstone
from sinks.tantivy.folder import IndexFolder, Version
from sinks.tantivy.queries import compiled
from sinks.tantivy.ranking import facets, page_of

_COPIED = 20_000
"""Documents that are in memory at once while a version is written again."""


class TantivyProfileIndex:
    """A `ProfileIndex` in one folder."""

    def __init__(self, path: str | Path, names: TombstoneNames) -> None:
        """`names` hashes the ids that documents and tombstones are written under."""
        self.folder = IndexFolder(Path(path))
        self._names = names

    def writing(self, stays_open: bool = False) -> AbstractContextManager[Callable[[], bool]]:
        return self.folder.writing(stays_open)

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        newest, refused = newest_of(documents)
        if newest:
            with self.writing():
                # Also into a version that is being made, which so misses nothing.
                for version in self.folder.versions():
                    put_into(self.folder, version, newest, self._names)
        return refused

    def versions(self, ids: Sequence[str]) -> dict[str, int]:
        return {each: present.stamp // 2 for each, present in self._present(ids).items()}

    def compare(self, documents: Sequence[IndexDocument]) -> dict[str, Indexed]:
        given, _ = newest_of(documents)
        return {
            each: Indexed(present.stamp // 2, each in given and given[each].content == present.content)
            for each, present in self._present([each.id for each in documents]).items()
        }

    def erase(self, versions: Mapping[str, int]) -> int:
        if not versions:
            return 0
        names = {self._names(each): 2 * version + 1 for each, version in versions.items()}
        with self.writing():
            gone = {
                # Nobody can put an older document there behind a block that reads the store. A reindex reads outside.
                each.state: erase_from(
                    self.folder, each, names, self.folder.is_within and each.state is VersionState.IN_USE
                )
                for each in self.folder.versions()
            }
        return gone[VersionState.IN_USE]

    def compact(self) -> None:
        """Versions are written again if anything was replaced there."""
        with self.writing():
            self.folder.keep([self.folder.compact(each, _copies) for each in self.folder.versions()])

    def search(
        self, query: Query, limit: int = 20, cursor: str | None = None, order: Order | None = None
    ) -> SearchPage:
        check_text(query, order)
        return self.folder.read(lambda index: page_of(*compiled(query, index), query, limit, cursor, order))

    def facets(self, query: Query, path: str, limit: int = 10) -> list[FacetCount]:
        check_text(query, Order(path))
        return self.folder.read(lambda index: facets(*compiled(query, index), path, limit))

    def count(self, query: Query) -> int:
        check_text(query)
        return self.folder.read(lambda index: count(*compiled(query, index)))

    def matches(self, document: IndexDocument, query: Query) -> bool:
        return matches(document, query)

    def identity(self) -> str:
        return self.folder.in_use().mark

    def close(self) -> None:
        self.folder.close()

    def _present(self, ids: Sequence[str]) -> dict[str, Present]:
        """The stamp and content of those ids that have a document."""
        names = {each: self._names(each) for each in dict.fromkeys(ids)}
        found = self.folder.read(lambda index: stamps(index.searcher(), names.values()))
        return {
            each: found[name] for each, name in names.items() if name in found and found[name].stamp % 2 == 0
        }


class Present(NamedTuple):
    """The columns of a document or tombstone."""

    stamp: int
    content: int | None


def stamps(searcher: Searcher, names: Iterable[bytes]) -> dict[bytes, Present]:
    """The columns of those names that have a document or a tombstone."""
    by_hash = {hash_of(each): each for each in names}
    if not by_hash or not searcher.num_docs:
        return {}
    wanted = Compiled.term_set_query(SCHEMA, "name", [each.hex() for each in by_hash.values()])
    places = [place for _, place in searcher.search(wanted, len(by_hash), count=False).hits]
    columns: list[list[Any]] = [
        searcher.fast_field_values(field, places) for field in ("hash", "stamp", "content")
    ]
    return {by_hash[number]: Present(stamp, content) for number, stamp, content in zip(*columns, strict=True)}


def newest_of(documents: Sequence[IndexDocument]) -> tuple[dict[str, Prepared], dict[str, str]]:
    """The newest document of each id; and the reason by id for those that cannot be put."""
    refused: dict[str, str] = {}
    newest: dict[str, Prepared] = {}
    for document in documents:
        present = newest.get(document.id)
        if present is not None and present.stamp > 2 * document.version:
            continue
        try:
            newest[document.id] = prepared(document)
        except TypeError as error:
            refused[document.id] = str(error)
        except UnicodeEncodeError:
            refused[document.id] = "text that is not valid Unicode"
    return newest, refused


def put_into(
    folder: IndexFolder, version: Version, newest: Mapping[str, Prepared], names: TombstoneNames
) -> None:
    """Write to one version what is neither older than what is there nor erased. Only while `writing`."""
    named = {names(each): document for each, document in newest.items()}
    present = _present(folder, version, named)
    given = {name: each for name, each in named.items() if present.get(name, -1) <= each.stamp}
    if given:
        with folder.writer(version) as (writer, written):
            for name, document in given.items():
                if name in present:
                    writer.delete_documents_by_term("name", name.hex())
                writer.add_json(document.json(name))
                written[name] = document.stamp


def erase_from(
    folder: IndexFolder, version: Version, erased: Mapping[bytes, int], only_present: bool = False
) -> int:
    """Put tombstones, stamps by name, in the place of what is not later; gives how many documents went. Only while
    `writing`. With `only_present` what is not there leaves none, and what is gone no later one."""
    present = _present(folder, version, erased)
    if only_present:
        erased = {name: erased[name] for name, stamp in present.items() if stamp % 2 == 0}
    behind = {name: stamp for name, stamp in erased.items() if present.get(name, -1) < stamp}
    if behind:
        with folder.writer(version) as (writer, written):
            for name, stamp in behind.items():
                writer.delete_documents_by_term("name", name.hex())
                writer.add_json(tombstone(name, stamp))
                written[name] = stamp
    return sum(present[each] % 2 == 0 for each in behind if each in present)


def _present(folder: IndexFolder, version: Version, names: Iterable[bytes]) -> dict[bytes, int]:
    """The stamps of those of these names that are written, committed or not."""
    committed = stamps(folder.open(version).searcher(), names)
    uncommitted = folder.uncommitted(version)
    return {name: each.stamp for name, each in committed.items()} | {
        name: uncommitted[name] for name in names if name in uncommitted
    }


def count(searcher: Searcher, query: Compiled) -> int:
    """The number of documents that match."""
    # Its result has no `count` in tantivy's types.
    found: Any = searcher.search(query, 1, count=True)
    return int(found.count)


def _copies(index: Index) -> Iterator[str]:
    """All documents again, and tombstones, in slices of their hashes."""
    searcher = index.searcher()
    slices = 1 + searcher.num_docs // _COPIED
    for number in range(slices):
        first, end = (2**64 * each // slices for each in (number, number + 1))
        query = Compiled.range_query(SCHEMA, "hash", FieldType.Unsigned, first, end - 1)
        places = [place for _, place in searcher.search(query, max(1, searcher.num_docs), count=False).hits]
        stamps_there: list[Any] = searcher.fast_field_values("stamp", places)
        for place, stamp in zip(places, stamps_there, strict=True):
            stored = searcher.doc(place).to_dict()
            name = bytes.fromhex(stored["name"][0])
            yield restored(stored, stamp).json(name) if "id" in stored else tombstone(name, stamp)
