"""The pages of flows, without a browser's help."""

from __future__ import annotations

import html
import json
import math
import re
import time
from typing import Any

import pytest

from idgraph.app.observation.flow_report import FlowReporter
from idgraph.app.settings.document import load
from idgraph.model.flows import FlowMoment, Flows, FlowState
from idgraph.model.topics import Behind
from metadata_service.storage.tokens import Role
from sinks.document_folder import DocumentFolder
from tests.app.test_flow_report import KAFKA, SNAPSHOTS, batch
from tests.metadata_service.ui.site import EVENT, Person, Whole
from tests.metadata_service.ui.test_dead_letters import text
from tests.retail import raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


LIST = "/ui/flows"
SCRIPT = "<script>alert(1)</script>"


def report_of(whole: Whole, state: FlowState = FlowState.RUNNING, age: float = -3600.0) -> Flows:
    """The flow `shop` has reported so long ago; by default it is never old, however long a test takes."""
    file = whole.pipeline.folder / "idgraph.toml"
    file.write_text(f'[flow]\nname = "shop"\n{KAFKA}')
    lag = {"clicks/0": Behind(1200), "shop-eu/1": Behind(34, 75.0)}
    reporter = FlowReporter(load(file), SNAPSHOTS, None, lambda: lag, None, lambda: time.time() - age)
    done: dict[str, Any] = {"written": 40, "unchanged": 2, "commit_seconds": 0.04, "map_seconds": 0.01}
    reporter.add(batch(3, 70, 0.5, protected=12, dead={"no_spec": 7}, sources={"web": 70}, **done))
    folders = Flows(DocumentFolder(whole.pipeline.folder))
    history = [
        FlowMoment(
            at_ms=int((time.time() - age) * 1000) - 15_000 * (40 - n),
            events_per_second=800 + 300 * math.sin(n / 4),
            set_aside_per_second=max(0, n - 30),
            commit_seconds_p99=0.2 + (n % 7) / 20 if n != 20 else None,
            waiting=1200 - 10 * n,
        )
        for n in range(40)
    ]
    (whole.pipeline.folder / "flows/shop").mkdir(parents=True, exist_ok=True)
    folders.write(reporter.report(state).model_copy(update={"history": history}))
    return folders


@pytest.fixture
def operator(whole: Whole) -> Person:
    person = whole.site.signed_in()
    eventually(lambda: person.client.get(LIST).status_code == 200)
    return person


def test_before_any_flow_the_page_says_how_to_start_one(whole: Whole, operator: Person) -> None:
    if not Flows(DocumentFolder(whole.pipeline.folder)).names():
        assert "idgraph run" in operator.get(LIST)


def test_a_flow_shows_its_figures_stages_and_sources(whole: Whole, operator: Person) -> None:
    folders = report_of(whole)
    report = folders.report("shop")
    assert report is not None
    assert f'href="{LIST}/shop"' in operator.get(LIST)
    page = text(operator.get(f"{LIST}/shop"))
    for found in ("1,234", "10.00%", "no_spec 7", "web", "shops"):
        assert found in page
    assert "most in clicks/0" in page
    assert "most in shop-eu/1, since 75 s" in page
    assert "falls behind" not in page
    behind = [each.model_copy(update={"falls_behind": True}) for each in report.sources[:1]]
    folders.write(report.model_copy(update={"sources": behind}))
    assert "Source web falls behind: more arrives" in text(operator.get(f"{LIST}/shop"))
    assert "the newest is" in page
    assert "events taken over 10 min" in operator.get(f"{LIST}/shop")
    operator.get(f"{LIST}/none", 404)


def test_a_line_is_broken_where_nothing_was_reported(whole: Whole, operator: Person) -> None:
    """Of 40 moments one has no commit, which breaks no line; ten that are missing do."""
    folders = report_of(whole)

    def lines() -> list[tuple[int, int, int]]:
        found = re.findall(r'class="(area|line)" d="([^"]*)"', operator.get(f"{LIST}/shop"))
        areas, drawn = ([path for kind, path in found if kind == wanted] for wanted in ("area", "line"))
        assert all(path.count("Z") == path.count("M") for path in areas)
        return [
            (path.count("M"), path.count("L"), area.count("M"))
            for path, area in zip(drawn, areas, strict=True)
        ]

    assert lines() == [(1, 39, 1), (1, 39, 1), (1, 38, 1), (1, 39, 1)]
    report = folders.report("shop")
    assert report is not None
    history = report.history[:5] + report.history[15:]
    folders.write(report.model_copy(update={"history": history}))
    assert lines() == [(2, 28, 2), (2, 28, 2), (2, 27, 2), (2, 28, 2)]


def test_a_flow_that_is_silent_says_so(whole: Whole, operator: Person) -> None:
    report_of(whole, age=100)
    assert "No report for" in operator.get(f"{LIST}/shop")
    assert "No report" in operator.get(LIST)
    report_of(whole, FlowState.STOPPED, age=100)
    assert "No report for" not in operator.get(f"{LIST}/shop")


def test_a_flow_that_has_ended_has_nothing_in_force_and_takes_nothing(whole: Whole, operator: Person) -> None:
    report_of(whole)
    rate = re.compile(r'<td class="right">[1-9][0-9.,]*</td><td class="right">')
    assert rate.search(operator.get(LIST))
    assert "running flow" in operator.get("/ui/?beside=true")
    for state, age in ((FlowState.STOPPED, 100), (FlowState.RUNNING, 100)):
        report_of(whole, state, age)
        assert not rate.search(operator.get(LIST))
        overview = operator.get("/ui/?beside=true")
        assert "in force on" not in overview
        assert 'href="/ui/flows">no flow runs' in overview


def test_pause_and_resume_with_a_reason(whole: Whole, operator: Person) -> None:
    folders = report_of(whole)
    operator.post(f"{LIST}/shop/pause", {"reason": ""}, 422)
    page = operator.post(f"{LIST}/shop/pause", {"reason": SCRIPT})
    assert "Paused by" in page
    assert "Pausing" in page
    assert SCRIPT not in page
    assert folders.is_paused("shop")
    operator.post(f"{LIST}/shop/pause", {"reason": "again"}, 409)
    assert "Resumed" in operator.post(f"{LIST}/shop/resume", {"reason": "done"})
    assert not folders.is_paused("shop")


def test_the_newest_events_of_a_source_are_shown_masked(whole: Whole, operator: Person) -> None:
    report_of(whole)
    page = operator.get(f"{LIST}/shop/sources/segment")
    assert "shop-segment@1" in page
    assert "ictoria" not in page
    assert "is sealed" in page
    assert 'into <a href="/ui/profiles/user_id%3A3474">' in page
    assert "every 3s" not in page
    assert "every 3s" in operator.get(f"{LIST}/shop/sources/segment?watched=true")
    assert "No event" in operator.get(f"{LIST}/shop/sources/orders")
    assert "of this type" in operator.get(f"{LIST}/shop/sources/segment?event_type=none")
    assert 'name = "nowhere"' in html.unescape(operator.get(f"{LIST}/shop/sources/nowhere"))
    viewer = whole.site.signed_in(Role.VIEWER)
    viewer.get(f"{LIST}/shop/sources/segment", 403)


def test_an_event_that_was_set_aside_leads_to_its_dead_letter(whole: Whole, operator: Person) -> None:
    report_of(whole)
    page = f"{LIST}/shop/sources/segment"
    assert "set aside" not in operator.get(page)
    letter = whole.pipeline.map(raw(b"{", 12, source="segment")).dead_letters[0]
    record = raw(EVENT, source="segment").as_arrived()
    sealed = whole.pipeline.sealer.seal(record, letter.id, letter.position)
    letter = letter._replace(payload=sealed)
    whole.letters.put([letter])
    try:
        shown = operator.get(page)
        assert f'href="/ui/dead-letters/{letter.id}">set aside: not json' in shown
    finally:
        whole.letters.drop([letter.id])


def test_the_editor_takes_the_newest_event_as_its_sample(whole: Whole, operator: Person) -> None:
    edit = "/ui/specs/shop-segment/edit"
    text = json.dumps(whole.site.api().get("/v1/specs/shop-segment").json()["document"])
    definition = {
        name: value for name, value in json.loads(text).items() if name not in ("version", "created")
    }
    fields = {"act": "newest", "text": json.dumps(definition), "sample": "", "etag": ""}
    page = html.unescape(operator.post(edit, fields))
    assert '"event": "Purchase"' in page
    assert "ictoria" not in page
    elsewhere = fields | {"text": json.dumps(definition | {"source": "nowhere"})}
    page = html.unescape(operator.post(edit, elsewhere, 422))
    assert 'name = "nowhere"' in page
    assert "answered 404" not in page


def test_without_the_scope_a_page_says_how_to_get_it(whole: Whole) -> None:
    report_of(whole)
    viewer = whole.site.signed_in(Role.VIEWER)
    for path in (LIST, f"{LIST}/shop"):
        refused = viewer.get(path, 403)
        assert "Ask for access" in refused
        assert "<code>operate</code>" in refused
        assert "<code>admin</code>" in refused
        assert "--role viewer --scope operate" in refused
        assert "--clearance" not in refused
    viewer.post(f"{LIST}/shop/pause", {"reason": "x"}, 403)
    assert viewer.client.post(f"{LIST}/shop/pause", data={"reason": "x"}).status_code == 403
