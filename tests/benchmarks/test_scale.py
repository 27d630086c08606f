"""The input of the scale benchmarks is as described: whole fragments, other events, a tenth for one person."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.pipeline import pipeline
from benchmarks.scale.growing_store import GrowingStore
from benchmarks.scale.hot import HOT_PERSON, heated
from benchmarks.scale.interference import Mood, Proxy
from benchmarks.scale.memory import LAST_MONTH, in_month
from benchmarks.sealing_cost import snapshot
from benchmarks.workload import SOURCES, events, renamed
from idgraph.model.events import RawRecord
from idgraph.model.store import scan_all
from idgraph.web.server import serving
from merge.fragments import FragmentState
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from tests.retail import states_of

pytestmark = pytest.mark.long


def test_the_store_grows_by_whole_fragments_that_differ(tmp_path: Path) -> None:
    with pipeline(tmp_path / "shop", snapshot(protected=True)) as stages:
        store = GrowingStore(stages)
        store.grow(25_000)
        assert stages.tools.store.count() == store.count == 25_000
        assert len(store.shops) == 1
        assert stages.tools.store.outbox(1) == []
        for fragment in scan_all(stages.tools.store):
            state = FragmentState.decode(fragment.state)
            state.encoded = None
            state.normalise()
            assert state.encode() == fragment.state
            assert fragment.id in state.names()


@pytest.mark.parametrize("source", SOURCES)
def test_events_of_a_later_month_are_other_events_of_the_same_people(tmp_path: Path, source: str) -> None:
    lines = [renamed(source, event, 1) for event in events(source)[:300]]
    with pipeline(tmp_path / "shop", snapshot(protected=True)) as stages:
        first, second = (
            stages.map(
                RawRecord(source, f"file:{source}/{month}#{number}", in_month(source, line, month))
                for number, line in enumerate(lines)
            )
            for month in (0, LAST_MONTH)
        )
    people = [{name for output in outputs for name in output.fragments} for outputs in (first, second)]
    assert not any(output.dead_letters for output in (*first, *second))
    assert people[0] == people[1]
    stamps = [
        {
            origin.stamp
            for output in outputs
            for state in states_of(output).values()
            for origin in state.identifiers.values()
        }
        for outputs in (first, second)
    ]
    assert not stamps[0] & stamps[1]
    assert max(stamps[0]) < min(stamps[1])


def test_one_person_gets_a_tenth_of_all_events() -> None:
    hot = total = 0
    for source in SOURCES:
        for number, event in enumerate(events(source)):
            total += 1
            hot += HOT_PERSON in json.dumps(heated(source, number, event))
    assert 0.1 <= hot / total <= 0.11


def test_the_proxy_does_what_it_is_reported(tmp_path: Path) -> None:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    with serving(app) as url, Proxy(url).serving() as proxy:

        def status(method: str) -> int:
            connection = HTTPConnection(urlsplit(proxy.url).netloc, timeout=60)
            connection.request(method, "/v1/snapshot", b"")
            found = connection.getresponse().status
            connection.close()
            return found

        assert status("GET") == 401
        proxy.mood = Mood.REFUSING
        assert (status("GET"), status("PATCH")) == (401, 503)
        proxy.mood = Mood.AWAY
        with pytest.raises(HTTPException):
            status("GET")
