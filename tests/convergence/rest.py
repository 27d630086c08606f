"""Invariants of a store and its companions at rest, when all is written and all servers are there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from idgraph.model.fragments import Kind
from idgraph.model.index import Indexed, IndexRules
from idgraph.model.queries import FullText, Query, Range, Term
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.projection.behaviour import Deriving
from idgraph.projection.documents import documents_of
from merge.fragments import FragmentState
from merge.identity.rules import Rules
from tests.convergence.events import BIG, COMPOSED
from tests.convergence.protected import is_protected
from tests.convergence.sites import Site
from tests.projecting import project, sweep
from tests.retail import persons_of

QUERIES = (
    Term("a", 1),
    Term("z.count", 1),
    Term("z.few", 2),
    Term("a.b", 2),
    Term("c", "text"),
    Term("u.id", "1"),
    Term("d.id", "7"),
    Term("n", BIG),
    Term("k.x", 1),
    Term("k.\0", "\0"),
    Term("k.", ""),
    FullText(COMPOSED),
    Range("a", 0, 3),
    Range("c", 0.15, 10**20),
    FullText("text"),
)


def left_behind(site: Site, rules: Sequence[IndexRules], snapshot: MetadataSnapshot) -> list[str]:
    """What should not be there, in words. `rules` are all that a document may have been made by, the newest first, `snapshot` the newest."""
    states, names = site.states(), site.names()
    # What is set aside of a fragment is sealed, too.
    kept = {*states, *site.names(site.dead_letter_owners()[1])}
    identity = Rules(rules[0].identity)
    profiles = {each.id for each in persons_of(site.store, identity)}
    tombstoned = [name for name in site.store.tombstones(names) if name not in kept]
    reported = {
        "entries in the outbox": site.store.outbox(),
        "erasures": site.store.unfinished(),
        "withdrawn fragments": site.store.withdrawn(),
        "keys of fragments that are gone": site.key_store.get(tombstoned),
        "other documents": set(names) & (site.index.versions(names).keys() ^ profiles),
        "documents": site.index.count(Query()) != len(profiles),
        "documents of other versions or contents": profiles - set(_indexed(site, rules, identity)),
        "identifiers that are not found": list(_unlinked(site)),
        "values in the clear": list(_readable(site, snapshot)),
    }
    return [what for what, found in reported.items() if found]


def _readable(site: Site, snapshot: MetadataSnapshot) -> Iterator[str]:
    """Paths with a value that policy protects."""
    for state in site.states().values():
        for path, register in FragmentState.decode(state).stored():
            if register.kind is Kind.PLAIN and is_protected(path, snapshot):
                yield path


def _indexed(site: Site, rules: Iterable[IndexRules], identity: Rules) -> Iterator[str]:
    """Profiles whose document is what some of these rules make of the versions that are stored."""
    for each in rules:
        persons = persons_of(site.store, identity)
        behaviour = Deriving(site.store).of(persons, each, time.time_ns() // 1_000_000)
        documents = documents_of(persons, each, behaviour).documents
        found = site.index.compare(documents)
        yield from (made.id for made in documents if found.get(made.id) == Indexed(made.version, True))


def _unlinked(site: Site) -> Iterator[str]:
    carried = {name: FragmentState.decode(state).names() | {name} for name, state in site.states().items()}
    yield from (name for name, carries in carried.items() if site.store.identifiers(name) != carries)
    for identifier in site.identifiers():
        carriers = sorted(name for name, carries in carried.items() if identifier in carries)
        if site.store.find(identifier) != carriers:
            yield identifier


def found(site: Site, rules: IndexRules) -> list[list[str]]:
    """What a few searches find, once all is indexed by the newest rules, which a change of policy leaves to be done."""
    project(site.store, site.index, rules, [each.id for each in site.store.scan(limit=1000)])
    # Fragments of hubs that this met come once more.
    sweep(site.store, site.index, rules)
    identity = Rules(rules.identity)
    assert sorted(_indexed(site, [rules], identity)) == [each.id for each in persons_of(site.store, identity)]
    results = ((clause, site.index.search(Query((clause,))).ids) for clause in QUERIES)
    # Ranks by words count documents that are replaced, until the index merges their files.
    return [sorted(ids) if isinstance(clause, FullText) else ids for clause, ids in results]
