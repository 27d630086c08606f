"""A store, an index and the index's versions, of each kind of index, and ways to damage them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from idgraph.jobs.reconcile import IndexReconciliation
from idgraph.jobs.reindex import PAGE, Reindex
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.index_versions import IndexVersions
from idgraph.model.jobs import Progress
from idgraph.model.queries import Query, Scalar, Term
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import NEW, FragmentWrite, OutboxEntry, ProfileStore
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from idgraph.projection.documents import IndexPolicy
from merge.fragments import FragmentState
from sinks.tantivy.folder import IndexFolder
from tests.contracts.implementations import (
    INDEX_VERSIONS,
    PROFILE_INDEXES,
    Implementation,
    hashed_name,
    reversed_name,
)
from tests.projecting import project, sweep
from tests.servers.elasticsearch import place_of_index
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.steps import stepped

KINDS = INDEX_VERSIONS


def allowing(*paths: str) -> IndexPolicy:
    """A policy that lets these paths into the index and no others."""
    return IndexPolicy(IndexRules(frozenset(paths).__contains__), ",".join(paths))


_ordinals = count(1)


def write(store: ProfileStore, name: str, value: Scalar, path: str = "x") -> OutboxEntry:
    """A later value of one fragment, which waits for the index then."""
    tombstoned = store.tombstones([name]).get(name, Tombstone(NO_EPOCH, NEW))
    present = store.read([name]).get(name)
    state = FragmentState.decode(present.state) if present else FragmentState()
    origin = Origin(Stamp(0, next(_ordinals), "shop", "e"), SpecRef("spec", 1))
    state.apply(FragmentChange(name, origin, {path: Register(origin, Kind.PLAIN, value)}, ()))
    state.normalise()
    version = present.version if present else tombstoned.version
    change = FragmentWrite(name, version, state.encode(), frozenset({name}), tombstoned.until)
    assert store.write([change]) == set()
    return OutboxEntry(name, version + 1)


class Rebuilt(NamedTuple):
    """How far a rebuild is."""

    job: Reindex
    progress: Progress

    @property
    def version(self) -> str:
        return self.job.version

    @property
    def refused(self) -> list[str]:
        return self.progress.notes.get("refused", [])


class Compared(NamedTuple):
    """How far a comparison is."""

    progress: Progress

    @property
    def compared(self) -> tuple[int, int]:
        """Fragments, and documents."""
        return self.progress.counts["stored"], self.progress.counts["indexed"]

    @property
    def drift(self) -> Counter[str]:
        return self.progress.parts("drift")

    @property
    def named(self) -> dict[str, list[str]]:
        return self.progress.notes

    @property
    def left(self) -> int:
        return self.progress.counts["left"]

    @property
    def repaired(self) -> int:
        return self.progress.counts["repaired"]

    @property
    def waiting(self) -> int:
        return self.progress.counts["waiting"]

    @property
    def unreadable(self) -> int:
        return self.progress.counts["unreadable"]


@dataclass
class IndexedStore:
    """What flows write to, and how they do it."""

    kind: Implementation[IndexVersions]
    folder: Path
    index: ProfileIndex
    versions: IndexVersions
    store: ProfileStore
    policy: IndexPolicy = field(default_factory=lambda: allowing("x"))

    def write(self, name: str, value: Scalar, path: str = "x") -> OutboxEntry:
        """Only into the store: what a flow has done when it dies before the index."""
        return write(self.store, name, value, path)

    def flow(self, name: str, value: Scalar, path: str = "x") -> None:
        """Into the store and into the index."""
        entry = self.write(name, value, path)
        assert project(self.store, self.index, self.policy.rules, [entry.fragment_id]) == set()

    def fill(self, number: int) -> None:
        for each in range(number):
            self.write(f"p:{each:03}", f"value{each}")
        assert sweep(self.store, self.index, self.policy.rules) == 0

    def unseen(self, name: str, value: Scalar) -> None:
        """Stored, and settled although the index never saw it."""
        self.store.settle([self.write(name, value)])

    def erase(self, name: str) -> None:
        """As an erasure does it."""
        self.store.erase([name], 1)
        assert project(self.store, self.index, self.policy.rules, [name]) == set()
        self.store.finish([name])

    def lose(self, name: str) -> None:
        """A document that its index has lost, by no doing of ours."""
        if self.kind.in_files:
            folder = IndexFolder(self.folder / "index")
            with folder.writing(), folder.writer(folder.in_use()) as (writer, _):
                writer.delete_documents_by_term("name", reversed_name(name).hex())
            folder.close()
            return
        from sinks.elasticsearch.bulk import alive, key_of
        from sinks.elasticsearch.client import ElasticsearchClient

        place = place_of_index(self.folder)
        client = ElasticsearchClient(place)
        (version,) = self.index.versions([name]).values()
        # With its version, so that nothing but the document is gone.
        key, reported = key_of(hashed_name(name)), {"version": alive(version), "version_type": "external_gte"}
        client.call(lambda api: api.delete(index=place.name, id=key, refresh=True, **reported))
        client.close()

    def lose_all(self) -> None:
        """The index's folder is lost, or removed since it is damaged, and made again by whoever comes next."""
        self.index.close()
        self.versions.close()
        shutil.rmtree(self.folder / "index", ignore_errors=True)
        self.versions = self.kind.open(self.folder)
        self.index = next(each for each in PROFILE_INDEXES if each.name == self.kind.name).open(self.folder)

    def found(self, value: Scalar, path: str = "x") -> list[str]:
        return self.index.search(Query((Term(path, value),)), 1000).ids

    def ids(self) -> list[str]:
        return self.index.search(Query(), 1000).ids

    def reindexing(
        self, page: int = PAGE, again: bool = False, policy: Callable[[], IndexPolicy] | None = None
    ) -> Generator[Rebuilt, None, None]:
        """Rebuild page by page; what is closed before its end is resumed by the next."""
        job = Reindex(self.store, self.versions, policy or (lambda: self.policy), page, again)
        with closing(stepped(self.folder, job, again)) as steps:
            for progress in steps:
                yield Rebuilt(job, progress)

    def reconciling(
        self, page: int = PAGE, repairs: bool = False, again: bool = False
    ) -> Generator[Compared, None, None]:
        """Compare page by page; what is closed before its end is resumed by the next."""
        job = IndexReconciliation(self.store, self.index, lambda: self.policy, repairs, page)
        with closing(stepped(self.folder, job, again)) as steps:
            for progress in steps:
                yield Compared(progress)


@contextmanager
def indexed_store(kind: Implementation[IndexVersions], folder: Path) -> Iterator[IndexedStore]:
    """Of one kind of index; the test is skipped where what it needs cannot be had."""
    of_index = next(each for each in PROFILE_INDEXES if each.name == kind.name)
    with of_index.opened(folder) as index, kind.opened(folder) as versions:
        yield IndexedStore(kind, folder, index, versions, empty_store(kind))


def empty_store(kind: Implementation[IndexVersions]) -> ProfileStore:
    """Whose tombstones have the names that the index knows them by."""
    return MemoryProfileStore(reversed_name if kind.in_files else hashed_name)
