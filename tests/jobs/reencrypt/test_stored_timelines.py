"""Timelines when policy changes: they go to the new names of their fragments, and have no value that it protects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idgraph.model.behaviour import ActivityDocument
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import FragmentWrite
from idgraph.model.timelines import DAY_MS, PageKey
from merge.page_codec import read_page
from sinks.sqlite.profiles import SqliteProfileStore
from tests.jobs.reencrypt.test_renaming import ticket
from tests.retail import UNDETECTED, Pipeline, attribute, raw, snapshot
from tests.sealing import previewed, sealed
from tests.support.renamed_orders import AFTER, BEFORE, PLAIN, hashed, later
from tests.support.stored_orders import ORDERS, Meddled, beside, stored_orders

ORDER = ActivityDocument(
    name="order",
    source="orders",
    fields={"total": "orders.last.total", "address": "address.shipping"},
    version=1,
)


def with_orders(found: MetadataSnapshot, activity: ActivityDocument = ORDER) -> MetadataSnapshot:
    return found.model_copy(update={"activities": (activity,)})


def timelines(pipeline: Pipeline) -> dict[str, dict[PageKey, bytes]]:
    return pipeline.store.timelines(list(pipeline.store.ids()))


def anew(pipeline: Pipeline, *more: RawRecord) -> dict[str, dict[PageKey, bytes]]:
    """What would be stored if today's policy had been there from the start."""
    other = Pipeline(pipeline.folder, pipeline.key_store, snapshot=pipeline.snapshot)
    other.process([*ORDERS, *more])
    return timelines(other)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return stored_orders(tmp_path, with_orders(BEFORE), with_orders(AFTER))


def test_a_timeline_goes_with_its_fragment_to_the_new_name(pipeline: Pipeline) -> None:
    assert PLAIN in timelines(pipeline)
    sealed(pipeline)
    assert timelines(pipeline) == anew(pipeline)
    assert pipeline.store.timelines([PLAIN]) == {}
    assert sealed(pipeline).fragments == 0


def test_it_is_joined_to_what_is_there_under_the_new_name(pipeline: Pipeline) -> None:
    pipeline.process([later()])
    sealed(pipeline)
    assert timelines(pipeline) == anew(pipeline, later())
    assert len(timelines(pipeline)[hashed(pipeline)]) == 2


def test_an_entry_that_comes_in_between_is_moved_by_the_next_try(tmp_path: Path) -> None:
    store = Meddled()
    pipeline = stored_orders(tmp_path, with_orders(BEFORE), with_orders(AFTER), store)
    flow = beside(pipeline, with_orders(BEFORE))
    store.before_withdrawal = lambda: flow.process([later()])
    sealed(pipeline)
    assert timelines(pipeline) == anew(pipeline, later())


def test_a_value_that_policy_protects_by_now_leaves_the_entries(tmp_path: Path) -> None:
    opened = snapshot(1, declared=[], defaults=UNDETECTED)
    closed = snapshot(
        2, declared=[attribute("address.shipping.city", encryption="protected")], defaults=UNDETECTED
    )
    pipeline = stored_orders(tmp_path, with_orders(opened), with_orders(closed))
    (page,) = timelines(pipeline)[PLAIN].values()
    (entry,) = read_page(page).entries()
    assert entry.fields["address"]["city"] == "Springfield"
    expected = previewed(pipeline).fragments
    assert sealed(pipeline).fragments == expected == 2
    assert timelines(pipeline) == anew(pipeline)
    (page,) = timelines(pipeline)[PLAIN].values()
    (entry,) = read_page(page).entries()
    assert b"Springfield" not in page
    assert "city" not in entry.fields["address"]
    assert "total" in entry.fields
    assert sealed(pipeline).fragments == 0


@pytest.mark.parametrize("names", [{"time": "orders.last.at"}, {"condition": "orders.last.at"}], ids=str)
def test_an_activity_whose_time_or_condition_policy_protects_by_now_has_no_entries(
    tmp_path: Path, names: dict[str, str]
) -> None:
    activity = ActivityDocument(name="order", source="orders", version=1).model_copy(update=names)
    closed = snapshot(2, declared=[attribute("orders.last.at", encryption="protected")], defaults=UNDETECTED)
    opened = snapshot(1, declared=[], defaults=UNDETECTED)
    pipeline = stored_orders(tmp_path, with_orders(opened, activity), with_orders(closed, activity))
    assert len(timelines(pipeline)) == 2
    reader = pipeline.reader()
    assert not reader.activities()
    sealed(pipeline)
    assert timelines(pipeline) == anew(pipeline) == {}


def test_a_field_of_which_nobody_says_the_path_goes(tmp_path: Path) -> None:
    opened = snapshot(1, declared=[], defaults=UNDETECTED)
    other = ActivityDocument(name="order", source="orders", fields={"total": "orders.last.total"}, version=2)
    pipeline = stored_orders(tmp_path, with_orders(opened), with_orders(opened, other))
    assert sealed(pipeline).fragments == 2
    for pages in timelines(pipeline).values():
        assert all(
            each.fields.keys() == {"total"} for page in pages.values() for each in read_page(page).entries()
        )


@pytest.mark.parametrize(
    "change", [{"status": "retired", "version": 2}, {"generation": 1, "version": 2}], ids=["retired", "later"]
)
def test_entries_that_count_no_more_go(tmp_path: Path, change: dict[str, Any]) -> None:
    opened = snapshot(1, declared=[], defaults=UNDETECTED)
    today = with_orders(opened, ORDER.model_copy(update=change))
    pipeline = stored_orders(tmp_path, with_orders(opened), today)
    assert sealed(pipeline).fragments == 2
    assert timelines(pipeline) == {}


@pytest.mark.parametrize("known", ["none", "earlier", "retired"])
def test_entries_of_a_later_snapshot_stay_as_they_are(tmp_path: Path, known: str) -> None:
    """A run keeps the snapshot that it began with, beside flows that have newer ones."""
    began = snapshot(5, declared=[], defaults=UNDETECTED)
    earlier = ORDER.model_copy(update={"fields": {"total": "orders.last.total"}})
    if known != "none":
        status = "retired" if known == "retired" else "active"
        began = with_orders(began, earlier.model_copy(update={"status": status}))
    newer = with_orders(
        snapshot(6, declared=[], defaults=UNDETECTED), ORDER.model_copy(update={"version": 2})
    )
    pipeline = stored_orders(tmp_path, newer, began)
    before = timelines(pipeline)
    assert len(before) == 2
    sealed(pipeline)
    assert timelines(pipeline) == before


def test_entries_of_a_later_snapshot_go_with_their_fragment_to_its_new_name(tmp_path: Path) -> None:
    newer = ORDER.model_copy(update={"name": "later"})
    pipeline = stored_orders(tmp_path, with_orders(BEFORE, newer), with_orders(AFTER))
    pages = sorted(sorted(each.items()) for each in timelines(pipeline).values())
    sealed(pipeline)
    assert sorted(sorted(each.items()) for each in timelines(pipeline).values()) == pages
    assert PLAIN not in timelines(pipeline)


def test_ids_of_events_are_hashed_in_entries_whose_values_later_events_replaced(tmp_path: Path) -> None:
    given = [
        raw(
            {
                "_event": {"ordinal": 1_700_000_000_000 + DAY_MS * n},
                "ticket": f"Ticket.{n}",
                "who": "p1",
                "a": n,
            },
            n,
        )
        for n in (1, 2)
    ]
    activity = ActivityDocument(name="ticket", time="_event.ordinal", version=1)
    spec = ticket().model_copy(update={"mode": "delta", "scope": None})
    pipeline = Pipeline(tmp_path, snapshot=with_orders(snapshot(1, [spec], [], UNDETECTED), activity))
    pipeline.process(given)
    declared = [attribute("ticket", encryption="protected")]
    pipeline.snapshot = with_orders(snapshot(2, [spec], declared, UNDETECTED), activity)
    sealed(pipeline)
    expected = Pipeline(tmp_path, pipeline.key_store, snapshot=pipeline.snapshot)
    expected.process(given)
    assert timelines(pipeline) == timelines(expected)
    pages = b"".join(page for each in timelines(pipeline).values() for page in each.values())
    assert len(timelines(pipeline)["person:p1"]) == 2
    assert b"Ticket." not in pages


def test_a_damaged_timeline_holds_its_fragment_and_is_counted(pipeline: Pipeline) -> None:
    (key,) = timelines(pipeline)[PLAIN]
    present = pipeline.store.read([PLAIN])[PLAIN]
    damaged = FragmentWrite(PLAIN, present.version, present.state, frozenset(), pages={key: b"damaged"})
    pipeline.store.write([damaged])
    done = sealed(pipeline)
    assert (done.failed, done.named) == (1, [hashed(pipeline)])
    assert PLAIN in timelines(pipeline)


def test_no_byte_of_it_stays_in_the_file(tmp_path: Path) -> None:
    opened = snapshot(1, declared=[], defaults=UNDETECTED)
    closed = snapshot(
        2, declared=[attribute("address.shipping.city", encryption="protected")], defaults=UNDETECTED
    )
    store = SqliteProfileStore(tmp_path / "profiles.db", str.encode)
    pipeline = stored_orders(tmp_path, with_orders(opened), with_orders(closed), store)
    assert b"Springfield" in b"".join(each.read_bytes() for each in tmp_path.glob("profiles.db*"))
    sealed(pipeline)
    assert b"Springfield" not in b"".join(each.read_bytes() for each in tmp_path.glob("profiles.db*"))
    store.close()
