"""Profiles a second of `idgraph reindex`, beside the same documents put bare in the same run.

python -m benchmarks reindex
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.index import BATCH, PATHS, value_at
from idgraph.jobs.job import PagedJob
from idgraph.jobs.reconcile import IndexReconciliation
from idgraph.jobs.reindex import Reindex
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.index import IndexDocument, IndexRules, ProfileIndex
from idgraph.model.index_versions import IndexVersions
from idgraph.model.jobs import Progress
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import NEW, FragmentWrite, ProfileStore
from idgraph.projection.documents import IndexPolicy, documents_of
from merge.fragments import FragmentState
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from sinks.tantivy.versions import TantivyIndexVersions
from tests.support.processes import ServerUnavailableError
from tests.support.stores import elasticsearch
from transforms.privacy.protected_names import TombstoneNames

PROFILES = 20_000

POLICY = IndexPolicy(IndexRules(lambda _: True), "all")


@dataclass
class _Kind:
    """One kind of index: filled by reindexing, and the bare way, given documents in batches."""

    index: ProfileIndex
    versions: IndexVersions
    put_bare: Callable[[Sequence[Sequence[IndexDocument]]], Callable[[], object]]


def measure(profiles: int = PROFILES) -> dict[str, Any]:
    """Profiles with twenty attributes that each kind of index rebuilds and compares per second of the clock.
    `bare` are the same documents, ready beforehand, put by a client that does nothing else: into another file of
    the embedded index, into an index of the same mapping in Elasticsearch. A share of 1 is the limit."""
    with tempfile.TemporaryDirectory(prefix="idgraph-reindex-") as name:
        folder = Path(name)
        provider = KeyringFile.create(folder / "keyring.json")
        names = TombstoneNames(provider)
        with closing(SqliteProfileStore(folder / "profiles.db", names)) as store:
            _fill(store, profiles)
            results: dict[str, Any] = {}
            for kind, opened in (("embedded", _embedded), ("elasticsearch", _elasticsearch)):
                try:
                    with opened(folder, names) as it:
                        results[kind] = _measured(it, store, profiles)
                except ServerUnavailableError as error:
                    results[kind] = {"left out": " ".join(str(error).split())}
    return results


def _measured(kind: _Kind, store: ProfileStore, profiles: int) -> dict[str, Any]:
    persons = Persons(store, Rules(POLICY.rules.identity))
    pages = [documents_of(page.persons, POLICY.rules).documents for page in persons.scan(page=BATCH)]
    bare = profiles / _seconds(kind.put_bare(pages))
    policy = lambda: POLICY  # noqa: E731 - what is asked for each page
    cpu = time.process_time()
    rebuilding = Reindex(store, kind.versions, policy)
    reindexed = profiles / _seconds(lambda: _run(rebuilding))
    cpu = time.process_time() - cpu
    comparing = IndexReconciliation(store, kind.index, policy)
    return {
        "profiles_a_second": round(reindexed),
        "bare_a_second": round(bare),
        "of_bare": round(reindexed / bare, 2),
        "our_cpu_us_a_profile": round(1e6 * cpu / profiles, 1),
        "reconciled_a_second": round(profiles / _seconds(lambda: _run(comparing))),
    }


def _run(job: PagedJob) -> None:
    progress = Progress(job.plan({}).total)
    for _ in job.pages(progress, {}):
        pass


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _fill(store: ProfileStore, profiles: int) -> None:
    chance = random.Random(7)
    for start in range(0, profiles, BATCH):
        writes: list[FragmentWrite] = []
        for number in range(start, min(profiles, start + BATCH)):
            name = f"realm_id:{number:010}"
            origin = Origin(Stamp(0, number, "bench", f"event-{number}"), SpecRef("bench", 1))
            values = {
                path: Register(origin, Kind.PLAIN, value_at(chance, place))
                for place, path in enumerate(PATHS)
            }
            state = FragmentState()
            state.apply(FragmentChange(name, origin, values, ()))
            state.normalise()
            writes.append(FragmentWrite(name, NEW, state.encode(), frozenset({name})))
        store.write(writes)


@contextmanager
def _embedded(folder: Path, names: TombstoneNames) -> Iterator[_Kind]:
    def put_bare(pages: Sequence[Sequence[IndexDocument]]) -> Callable[[], object]:
        return lambda: [bare.put(page) for page in pages]

    with (
        closing(TantivyProfileIndex(folder / "bare", names)) as bare,
        closing(TantivyProfileIndex(folder / "index", names)) as index,
        closing(TantivyIndexVersions(folder / "index", names)) as versions,
    ):
        yield _Kind(index, versions, put_bare)


@contextmanager
def _elasticsearch(folder: Path, names: TombstoneNames) -> Iterator[_Kind]:
    from benchmarks.bare_bulk import BareBulk
    from sinks.elasticsearch.client import IndexLocation
    from sinks.elasticsearch.index import ElasticsearchProfileIndex
    from sinks.elasticsearch.schema import IndexShape
    from sinks.elasticsearch.versions import ElasticsearchIndexVersions

    with elasticsearch(folder / "elasticsearch") as node:
        place = IndexLocation(node.url, "bench")
        bare = BareBulk(node.url)

        def put_bare(pages: Sequence[Sequence[IndexDocument]]) -> Callable[[], object]:
            bodies = [bare.body(page) for page in pages]
            # Once before, so that the server is warm, and once more to count.
            bare.put(bodies[:5])
            return lambda: bare.put(bodies)

        with (
            closing(bare),
            closing(ElasticsearchIndexVersions(place, names, IndexShape(replicas=0))) as versions,
            closing(ElasticsearchProfileIndex(place, names)) as index,
        ):
            yield _Kind(index, versions, put_bare)
