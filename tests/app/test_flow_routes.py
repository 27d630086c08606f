"""Flows over HTTP: what they report, pause and resume."""

from __future__ import annotations

import time

from idgraph.app.observation.flow_report import FlowReporter
from idgraph.model.flows import SILENT_SECONDS, Flows, FlowState, HeldSources, SourceHold
from sinks.document_folder import DocumentFolder
from tests.app.test_dead_letter_routes import Desk, desk  # noqa: F401 - a fixture
from tests.app.test_flow_report import SNAPSHOTS, batch
from tests.profile_service.api.conftest import problem

PATH = "/v1/flows"


def write(desk: Desk, state: FlowState = FlowState.RUNNING, age: float = -3600.0) -> Flows:  # noqa: F811
    """By default it is never old, however long a test takes."""
    settings = desk.idgraph.settings()
    reporter = FlowReporter(settings, SNAPSHOTS, None, dict, None, lambda: time.time() - age)
    reporter.add(batch(3, 70, 0.5, dead={"no_spec": 7}, sources={"orders": 70}))
    folders = Flows(DocumentFolder(settings.directory))
    folders.write(reporter.report(state))
    return folders


def test_only_operators_see_and_pause_flows(desk: Desk) -> None:  # noqa: F811
    write(desk)
    (flow,) = desk.low.get(PATH).json()["items"]
    body = {"reason": "why"}
    path = f"{PATH}/{flow['name']}"
    for method, address, sent in (
        ("GET", PATH, None),
        ("GET", path, None),
        ("POST", f"{path}/pause", body),
        ("POST", f"{path}/resume", body),
    ):
        problem(desk.reader.request(method, address, json=sent), 403)
        if address != PATH:
            problem(desk.low.request(method, address.replace(flow["name"], "none"), json=sent), 404)
            problem(desk.low.request(method, address.replace(flow["name"], ".."), json=sent), 404)


def test_a_flow_says_what_it_does_and_that_it_is_silent(desk: Desk) -> None:  # noqa: F811
    assert desk.operator.get(PATH).json() == {"items": [], "damaged": []}
    write(desk)
    (flow,) = desk.operator.get(PATH).json()["items"]
    assert (flow["is_stale"], flow["pause"], flow["newest_snapshot"]) == (False, None, 1)
    assert (flow["report"]["set_aside_share"], flow["report"]["snapshot_version"]) == (0.1, 7)
    write(desk, age=SILENT_SECONDS + 1)
    assert desk.operator.get(f"{PATH}/{flow['name']}").json()["is_stale"]
    write(desk, FlowState.STOPPED, age=SILENT_SECONDS + 1)
    assert not desk.operator.get(f"{PATH}/{flow['name']}").json()["is_stale"]


def test_pause_and_resume_are_kept_with_who_and_why(desk: Desk) -> None:  # noqa: F811
    folders = write(desk)
    (name,) = folders.names()
    problem(desk.operator.post(f"{PATH}/{name}/resume", json={"reason": "why"}), 409)
    problem(desk.operator.post(f"{PATH}/{name}/pause", json={"reason": ""}), 422)
    paused = desk.operator.post(f"{PATH}/{name}/pause", json={"reason": "the store moves"}).json()
    assert (paused["pause"]["who"], paused["pause"]["why"]) == ("operator", "the store moves")
    assert folders.is_paused(name)
    problem(desk.low.post(f"{PATH}/{name}/pause", json={"reason": "again"}), 409)
    assert desk.low.post(f"{PATH}/{name}/resume", json={"reason": "it moved"}).json()["pause"] is None
    assert not folders.is_paused(name)
    assert "it moved" in desk.audited()


def test_damaged_files_of_a_flow_hide_no_other(desk: Desk) -> None:  # noqa: F811
    folders = write(desk)
    (name,) = folders.names()
    for damaged, file in (("cut", "report.json"), ("pausing", "paused.json")):
        folder = desk.idgraph.settings().directory / "flows" / damaged
        folder.mkdir()
        (folder / "report.json").write_text(folders.report(name).model_dump_json())  # type: ignore[union-attr]
        (folder / file).write_text('{"name": ')
    found = desk.operator.get(PATH).json()
    assert ([each["name"] for each in found["items"]], found["damaged"]) == ([name], ["cut", "pausing"])
    problem(desk.operator.get(f"{PATH}/cut"), 503)


def test_a_source_that_waits_is_shown_and_tried_again(desk: Desk) -> None:  # noqa: F811
    folders = write(desk)
    (name,) = folders.names()
    held = HeldSources(DocumentFolder(desk.idgraph.settings().directory / "flows" / name), "")
    held.hold(
        SourceHold(source="till", why="70 of 90 events", at_ms=5, batch=3, batch_name="f/q/3", specs=())
    )
    (shown,) = desk.operator.get(f"{PATH}/{name}").json()["held"]
    assert (shown["source"], shown["why"]) == ("till", "70 of 90 events")
    problem(desk.operator.post(f"{PATH}/{name}/resume?source=web", json={"reason": "why"}), 409)
    problem(desk.operator.post(f"{PATH}/{name}/resume?source=..", json={"reason": "why"}), 422)
    found = desk.low.post(f"{PATH}/{name}/resume?source=till", json={"reason": "it is repaired"}).json()
    assert found["held"] == []
    assert "it is repaired" in desk.audited()
