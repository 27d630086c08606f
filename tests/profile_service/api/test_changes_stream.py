"""The feed of changes as server-sent events: resumed, in order, with heartbeats, and only for those who may read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.model.queries import Exists, Not
from tests.profile_service.api.conftest import Served, caller, identified, problem, served_here, with_levels
from tests.profile_service.api.test_segments import segment, with_segments
from tests.retail import Pipeline
from tests.support.patience import eventually

STREAM = {"Accept": "text/event-stream"}


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Each event with its id and name; a comment as an empty one."""
    found: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            found |= {name: json.loads(value) if name == "data" else value} if name else {}
        else:
            yield found
            found = {}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    pipeline = Pipeline(tmp_path)
    pipeline.snapshot = with_segments(pipeline.snapshot, segment("everybody"))
    with served_here(pipeline, [caller("all", 100)]) as found:
        yield found


def come(served: Served, *users: str) -> None:
    served.pipeline.process([identified(each, f"{each}@example.com") for each in users])


def streamed(client: httpx.Client, **headers: str) -> Any:
    return client.stream("GET", "/v1/changes", headers=STREAM | headers)


def test_what_comes_is_sent_and_a_stream_is_resumed(served: Served) -> None:
    client = served.client("all")
    come(served, "a")
    with streamed(client) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        found = (each for each in events(answer.iter_lines()) if each)
        first = next(found)
        assert (first["event"], first["data"]["profile"]) == ("entered", "user_id:a")
        come(served, "b")
        second = next(found)
        assert second["data"]["profile"] == "user_id:b"
    come(served, "c")
    with streamed(client, **{"Last-Event-ID": second["id"]}) as answer:
        third = next(each for each in events(answer.iter_lines()) if each)
        assert third["data"]["profile"] == "user_id:c"
    listed = client.get("/v1/changes").json()["items"]
    assert [each["cursor"] for each in listed] == [first["id"], second["id"], third["id"]]


def test_a_page_is_empty_only_where_nothing_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading again: many hidden changes in a row looked like the end, where clients stop."""
    monkeypatch.setattr("profile_service.api.routes.changes.PAGE", 1)
    pipeline = Pipeline(tmp_path)
    hidden = segment("hidden", Not(Exists("demographics.age")))
    pipeline.snapshot = with_segments(with_levels({"demographics.age": 30}), hidden, segment("everybody"))
    both = pipeline.snapshot
    with served_here(pipeline, [caller("none", 0)]) as served:
        pipeline.snapshot = with_segments(both, hidden)
        come(served, *(f"u{number}" for number in range(30)))
        pipeline.snapshot = both
        come(served, "late")
        page = served.client("none").get("/v1/changes?limit=1").json()
        assert [each["segment"] for each in page["items"]] == ["everybody"]


def test_a_quiet_stream_shows_that_it_is_alive(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profile_service.api.routes.changes.HEARTBEAT_SECONDS", 0)
    with streamed(served.client("all")) as answer:
        assert next(answer.iter_lines()) == ": alive"


def test_a_stream_ends_with_the_right_to_read(served: Served) -> None:
    client = served.client("all")
    come(served, "a")
    with streamed(client) as answer:
        lines = answer.iter_lines()
        next(lines)
        served.metadata.callers_now.clear()
        assert not any(line.startswith("id") for line in lines)
    problem(client.get("/v1/changes", headers=STREAM), 401)


def test_what_is_wrong_is_a_problem_before_anything_is_sent(served: Served) -> None:
    client = served.client("all")
    problem(client.get("/v1/changes", headers=STREAM | {"Last-Event-ID": "nonsense"}), 400)
    problem(client.get("/v1/changes?segment=nothing", headers=STREAM), 404)


def test_a_caller_has_so_many_streams_with_all_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profile_service.api.routes.changes.MOST_STREAMS", 2)
    pipeline = Pipeline(tmp_path)
    names = ("ann/one", "ann/two", "ben")
    with served_here(pipeline, [caller(each, 100) for each in names]) as served, ExitStack() as stack:
        for name in names[:2]:
            assert stack.enter_context(streamed(served.client(name))).status_code == 200
        for name in names[:2]:
            refused = served.client(name).get("/v1/changes", headers=STREAM)
            problem(refused, 429)
            assert int(refused.headers["Retry-After"]) > 0
            assert served.client(name).get("/v1/changes").status_code == 200
        with streamed(served.client("ben")) as answer:
            assert answer.status_code == 200
            monkeypatch.setattr("profile_service.api.routes.changes.MOST_STREAMS_IN_ALL", 3)
            problem(served.client("ben").get("/v1/changes", headers=STREAM), 429)
        stack.close()

        def ended() -> bool:
            with streamed(served.client("ann/one")) as answer:
                return bool(answer.status_code == 200)

        eventually(ended)
