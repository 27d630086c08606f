"""Pages of a store are of as many fragments as memory has room for."""

from __future__ import annotations

from idgraph.model.batch_size import MOST_BYTES, UNWEIGHED, BatchSize
from idgraph.model.store import read_pages, scan_all, scan_pages
from tests.support.weighed_stores import HEAVY, WeighedStore


def test_pages_of_heavy_fragments_are_small() -> None:
    store = WeighedStore()
    store.fill(200, HEAVY)
    assert [each.id for page in scan_pages(store) for each in page] == list(store.ids())
    sizes = [len(found) for _, found in read_pages(store, store.ids(), BatchSize(1000))]
    assert len(list(scan_all(store))) == sum(sizes) == 200
    assert 0.9 * MOST_BYTES < max(store.bytes) <= MOST_BYTES


def test_pages_of_light_ones_are_soon_of_the_size_that_is_asked_for() -> None:
    store = WeighedStore()
    store.fill(4000)
    assert [len(page) for page in scan_pages(store, 1000)] == [UNWEIGHED, 100, 200, 400, 800, 1000, 1000, 450]
    assert [len(page) for page in scan_pages(store, 20)] == [20] * 200


def test_a_size_that_is_given_again_knows_what_fragments_weigh() -> None:
    store, size = WeighedStore(), BatchSize(1000)
    store.fill(3000)
    ids = list(store.ids())
    asked = [some for _ in range(2) for some, _ in read_pages(store, ids, size)]
    assert [each for some in asked for each in some] == 2 * ids
    assert [len(some) for some in asked[-3:]] == [1000, 1000, 1000]


def test_what_is_not_there_holds_up_nothing() -> None:
    store = WeighedStore()
    store.fill(3)
    pages = list(read_pages(store, (f"gone:{each}" for each in range(400)), BatchSize(1000)))
    assert [(len(some), found) for some, found in pages] == [(50, {}), (100, {}), (200, {}), (50, {})]
