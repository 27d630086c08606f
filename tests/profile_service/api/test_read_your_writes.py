"""`wait_for`: an answer that has the event at a position, or a 503 within bounds; positions by a flow's checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from idgraph.app.flow_progress import committed
from idgraph.app.settings.document import load
from idgraph.model.errors import QueryError
from idgraph.model.flows import FlowReport, Flows
from sinks.document_folder import DocumentFolder
from tests.ingestion.sources.test_taken_files import checkpoint
from tests.profile_service.api.conftest import caller, identified, problem, served_here
from tests.retail import Pipeline

POSITION = "kafka:shop/0/7"
WAITING = {"wait_for": POSITION}


class Beside:
    """Work that a thread does as soon as the service asks, and that takes no effect before."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._asked, self._stored = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def has_committed(self, position: str) -> bool:
        self._asked.set()
        return position == POSITION and self._stored.is_set()

    def _run(self) -> None:
        self._asked.wait()
        (output,) = self._pipeline.map_stage().run([identified("new", "new@example.com")])
        self._pipeline.commit_stage().run(output.encoded())
        self._stored.set()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profile_service.service.LONGEST_WAIT_SECONDS", 60)


@pytest.mark.usefixtures("patient")
def test_an_answer_waits_for_the_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(tmp_path)
    beside = Beside(pipeline)
    with served_here(pipeline, [caller("all", 100)], has_committed=beside.has_committed) as served:
        client = served.client("all")
        beside.thread.start()
        assert client.get("/v1/profiles/user_id:new", params=WAITING).status_code == 200
        # Stored, and searchable for those who wait for it: a look at the outbox is followed by its projection.
        assert client.get("/v1/search/count").json() == {"count": 0}
        outbox = pipeline.store.outbox

        def seen(limit: int = 1000, after: str = "") -> object:
            monkeypatch.setattr(pipeline.store, "outbox", outbox)
            try:
                return outbox(limit, after)
            finally:
                pipeline.project()

        monkeypatch.setattr(pipeline.store, "outbox", seen)
        assert client.post("/v1/search/count", params=WAITING, json={}).json() == {"count": 1}
        body = {"identifiers": ["user_id:new"]}
        (item,) = client.post("/v1/profiles/lookup", params=WAITING, json=body).json()["items"]
        assert item["profile"]["id"] == "user_id:new"


def test_it_waits_no_longer_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profile_service.service.LONGEST_WAIT_SECONDS", 0.1)
    pipeline = Pipeline(tmp_path)
    with served_here(pipeline, [caller("all", 100)], has_committed=lambda _: False) as served:
        for path in ("/v1/profiles/user_id:new", "/v1/search", "/v1/search/facets?path=a"):
            late = served.client("all").get(path, params=WAITING)
            problem(late, 503)
            assert late.headers["Retry-After"]
    with served_here(pipeline, [caller("all", 100)]) as served:
        problem(served.client("all").get("/v1/search", params=WAITING), 400)


def test_positions_by_the_checkpoint_of_a_flow(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text("")
    settings = load(file)
    has_committed = committed(settings, Flows(DocumentFolder(settings.directory)))
    with pytest.raises(QueryError, match="not here"):
        has_committed(POSITION)
    folder = checkpoint(settings.flow_state() / "checkpoint", {0: 1, 1: 2, 2: 3})
    (folder / "commits").mkdir()
    for number in range(2):
        (folder / "commits" / str(number)).write_text("v1\n{}")
    assert [has_committed(f"file:in/{entry}-0.jsonl") for entry in range(4)] == [True, True, True, False]
    assert has_committed("file:in/1-2.jsonl#3")
    assert not has_committed("file:elsewhere/1-2.jsonl")
    assert not has_committed(POSITION)
    (folder / "commits" / "2").write_text("v1\n{}")
    assert has_committed("file:in/3-0.jsonl")
    (folder / "offsets" / "2").write_text('v1\n{}\n{"shop":{"0":7}}')
    assert not has_committed(POSITION)
    (folder / "offsets" / "2").write_text('v1\n{}\n{"shop":{"0":8}}')
    assert has_committed(POSITION)
    for wrong in ("kafka:shop/0", "file:../in/x.jsonl#x", "shop@7", ""):
        with pytest.raises(QueryError, match="a position is"):
            has_committed(wrong)


def test_positions_by_the_reports_of_flows_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text('[store]\nkind = "dynamodb"\nregion = "eu-central-1"\n')
    flows = Flows(DocumentFolder(tmp_path))
    has_committed = committed(load(file), flows)
    assert not has_committed(POSITION)
    for name, offset in (("one", 3), ("two", 7)):
        flows.write(report(name, {"shop": {0: offset}}))
    assert not has_committed(POSITION)
    flows.write(report("two", {"shop": {0: 8}}))
    assert has_committed(POSITION)
    with pytest.raises(QueryError, match="not here"):
        has_committed("file:in/1-0.jsonl")
    with pytest.raises(QueryError, match="a position is"):
        has_committed("shop@7")


def report(name: str, taken: dict[str, dict[int, int]]) -> FlowReport:
    figures = {field: 0 for field, each in FlowReport.model_fields.items() if each.is_required()}
    lists: dict[str, object] = {"set_aside_reasons": {}, "stages": [], "sources": [], "last_batch": None}
    return FlowReport.model_validate(figures | lists | {"name": name, "state": "running", "taken": taken})
