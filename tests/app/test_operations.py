"""Jobs over all profiles, started, watched, cancelled and resumed over HTTP, on real stores."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import httpx
import pyarrow.parquet as pq
import pytest

from idgraph.app import wiring
from idgraph.app.jobs.threads import JobThreads
from idgraph.app.wiring import job_runner, opened_to_read
from idgraph.client import ProfilesClient
from idgraph.jobs.export import expected
from idgraph.jobs.job import PagedJob, Plan
from idgraph.model.callers import Scope
from idgraph.model.errors import JobStoppedError, ProfileIndexError, ProfileServiceError
from idgraph.model.jobs import JobKind, Point, Progress, Requester
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.web.server import serving
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.api.rights import Rights
from profile_service.service import ProfileService
from tests.app.conftest import CommandLine
from tests.app.test_erase_command import USER, filled_once  # noqa: F401 - a fixture
from tests.profile_service.api.conftest import LEVELS, Metadata, caller, problem, with_levels
from tests.retail import attribute
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


WHO = f"user_id:{USER}"


class Operating(NamedTuple):
    """A service over the command line's folder, with a client of each right."""

    idgraph: CommandLine
    metadata: Metadata
    operator: httpx.Client
    seeing: httpx.Client
    analyst: httpx.Client
    other: httpx.Client

    def ended(self, client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
        """A job that a client started, when it has ended."""
        assert answer.status_code == 202, answer.text
        path = answer.headers["Location"]
        eventually(lambda: client.get(path).json()["state"] != "running")
        found: dict[str, Any] = client.get(path).json()
        return found


@pytest.fixture
def operating(filled: CommandLine) -> Iterator[Operating]:
    settings = filled.settings()
    callers = [
        caller("operator", 0, scopes=[Scope.OPERATE]),
        caller("seeing", 100, scopes=[Scope.OPERATE]),
        caller("analyst", 20),
        caller("other", 20),
    ]
    metadata = Metadata(with_levels(LEVELS | {"identity.email": 10}), callers)
    with ExitStack() as stack:
        adapters = stack.enter_context(opened_to_read(settings))
        following = stack.enter_context(Following(metadata))
        jobs = JobThreads(settings, lambda: PinnedSnapshot(*following.edition()))
        audit = wiring.audit_log(settings)
        rights = Rights(jobs=stack.enter_context(jobs))
        url = stack.enter_context(
            serving(create_app(ProfileService(adapters, following, audit, rights=rights)))
        )
        eventually(following.is_ready)
        clients = [
            stack.enter_context(
                httpx.Client(
                    base_url=url,
                    headers={"Authorization": f"Bearer {each.name}"},
                    timeout=60,
                    trust_env=False,
                )
            )
            for each in callers
        ]
        yield Operating(filled, metadata, *clients)


def test_an_operator_starts_and_sees_all_jobs_and_others_their_own(operating: Operating) -> None:
    operator, analyst = operating.operator, operating.analyst
    for kind in ("reindex", "reconcile", "re-encrypt"):
        body = {"kind": kind, "reason": "after an outage"}
        problem(analyst.post("/v1/jobs", json=body), 403)
        problem(operator.post("/v1/jobs", json={"kind": kind}), 422)
        job = operating.ended(operator, operator.post("/v1/jobs", json=body))
        assert (job["kind"], job["state"], job["who"], job["why"]) == (
            kind,
            "done",
            "operator",
            "after an outage",
        )
        assert job["unit"] == ("comparison" if kind == "reconcile" else "fragment")
        assert job["done"] > 0
    refused = operator.post("/v1/jobs", json={"kind": "erase", "reason": "x"})
    problem(refused, 422)
    assert "<JobKind" not in refused.text
    problem(analyst.get(f"/v1/jobs/{job['id']}"), 404)
    problem(analyst.post(f"/v1/jobs/{job['id']}/cancel", json={"reason": "x"}), 404)
    assert analyst.get("/v1/jobs").json() == {"items": [], "next": None, "may_start": ["export"]}
    listed = operator.get("/v1/jobs").json()
    assert [each["kind"] for each in listed["items"]][:3] == ["re-encrypt", "reconcile", "reindex"]
    assert set(listed["may_start"]) == {"reindex", "reconcile", "re-encrypt", "export"}
    first = operator.get("/v1/jobs?limit=1").json()
    second = operator.get("/v1/jobs", params={"limit": 1, "cursor": first["next"]}).json()
    assert [*first["items"], *second["items"]] == listed["items"][:2]
    assert operator.get("/v1/jobs?kind=reindex&state=failed").json()["items"] == []
    problem(operator.get("/v1/jobs?cursor=nonsense"), 400)
    # The same jobs as on the command line.
    (shown,) = operating.idgraph.json("jobs", "show", job["id"], "--json")
    assert (shown["who"], shown["why"]) == ("operator", "after an outage")


def test_an_export_has_what_its_caller_sees_and_is_theirs_alone(operating: Operating) -> None:
    analyst = operating.analyst
    job = operating.ended(analyst, analyst.post("/v1/jobs", json={"kind": "export", "reason": "a report"}))
    assert (job["state"], job["unit"]) == ("done", "profile")
    assert job["acts"] == ["download"]
    assert job["expires"]
    path = f"/v1/jobs/{job['id']}/download"
    answer = analyst.get(path)
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert len(lines) == job["done"] == job["total"] > 2
    assert not any("age" in each["attributes"].get("demographics", {}) for each in lines)
    assert '{"$protected":true}' in answer.text
    for client in (operating.other, operating.operator, operating.seeing):
        problem(client.get(path), 404)
    directory = operating.idgraph.settings().directory
    kept = [each.read_bytes() for each in (directory / "downloads").glob(f"{job['id']}.*")]
    assert any(kept)
    assert not any(lines[0]["id"].encode() in each for each in kept)
    again = operating.ended(analyst, analyst.post("/v1/jobs", json={"kind": "export", "reason": "again"}))
    problem(analyst.get(path), 404)
    path = f"/v1/jobs/{again['id']}/download"
    assert analyst.get(path).content == answer.content
    log = (directory / "audit.jsonl").read_text().splitlines()
    actions = [json.loads(line)["action"] for line in log]
    assert actions == ["keys init", *["start export", "download export"] * 2]
    # Whatever is hidden now was not when it was made.
    newer = operating.metadata.snapshot_now
    hidden = attribute("shop.persona", "string").model_copy(update={"authorization_level": 90})
    attributes = [each for each in newer.attributes if each.path != hidden.path]
    operating.metadata.snapshot_now = newer.model_copy(update={"attributes": (*attributes, hidden)})
    operating.metadata.version += 1
    eventually(lambda: analyst.get(path).status_code == 409)


def test_an_export_as_parquet_goes_with_an_erased_person(operating: Operating) -> None:
    seeing = operating.seeing
    body = {"kind": "export", "form": "parquet", "reason": "a report"}
    problem(seeing.post("/v1/jobs", json=body | {"segment": "unknown"}), 404)
    job = operating.ended(seeing, seeing.post("/v1/jobs", json=body))
    assert (job["state"], job["error"]) == ("done", "")
    path = f"/v1/jobs/{job['id']}/download"
    table = pq.read_table(io.BytesIO(seeing.get(path).content))
    assert table.num_rows == job["done"]
    assert "demographics.age" in table.column_names
    settings = operating.idgraph.settings()
    assert list((settings.directory / "exports").iterdir()) == []
    operating.idgraph.json("erase", WHO, "--yes", "--json")
    problem(seeing.get(path), 404)


def test_an_export_as_parquet_has_the_columns_that_were_asked_for(operating: Operating) -> None:
    body = {"kind": "export", "form": "parquet", "reason": "features"}
    chosen = body | {"columns": ["demographics.gender", "activity.lastSeenAt"], "key": "user_id"}
    with ProfilesClient(str(operating.seeing.base_url), "seeing") as profiles:
        job = profiles.call("POST", "jobs", body=chosen)
        eventually(lambda: profiles.call("GET", "jobs", job["id"])["state"] != "running")
        table = pq.read_table(io.BytesIO(profiles.download("jobs", job["id"], "download")))
        with pytest.raises(ProfileServiceError) as unknown:
            profiles.download("jobs", "unknown", "download")
    assert unknown.value.status == 404
    own = ["_id", "_identifiers", "user_id", "_rest"]
    assert table.column_names == [*own[:3], *chosen["columns"], own[3]]
    assert any(table.column("user_id").to_pylist())
    seeing, analyst = operating.seeing, operating.analyst
    for client, wrong in (
        (seeing, {"columns": ["demographics.gendr"]}),
        (seeing, {"key": "usr_id"}),
        (seeing, {"form": "jsonl"}),
        # The caller's clearance hides these.
        (analyst, {"key": "user_id"}),
        (analyst, {"key": None, "columns": ["demographics.age"]}),
    ):
        answer = client.post("/v1/jobs", json=chosen | wrong)
        assert answer.status_code in (400, 422), answer.text


class Endless(PagedJob):
    """Goes on until it is asked to end."""

    kind = JobKind.RECONCILE

    def __init__(self) -> None:
        self.what = {"repair": False}

    def plan(self, _point: Point) -> Plan:
        return Plan("endless", 5, "comparison")

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        while True:
            progress.counts["values/demographics.age"] += 1
            progress.note("missing", ["user_id:1"])
            yield {}


def test_a_job_is_cancelled_and_resumed(operating: Operating) -> None:
    settings, operator = operating.idgraph.settings(), operating.operator
    reason = {"reason": "asked for twice"}

    def cancelled() -> None:
        (found,) = operator.get("/v1/jobs?state=running").json()["items"]
        assert found["acts"] == ["cancel"]
        problem(operator.post("/v1/jobs", json={"kind": "reconcile", **reason}), 409)
        problem(operator.post(f"/v1/jobs/{found['id']}/resume", json=reason), 409)
        answer = operator.post(f"/v1/jobs/{found['id']}/cancel", json=reason)
        assert answer.status_code == 202
        assert answer.json()["is_ending"]

    asked = iter([cancelled])
    with job_runner(settings) as runner, pytest.raises(JobStoppedError):
        runner.run(Endless(), Requester("a flow"), watch=lambda _: next(asked, lambda: None)())
    (found,) = operator.get("/v1/jobs?state=cancelled&who=a+flow").json()["items"]
    assert found["acts"] == ["resume"]
    problem(operator.post(f"/v1/jobs/{found['id']}/cancel", json=reason), 409)
    # What may name attributes and persons is for those who see everything.
    path = f"/v1/jobs/{found['id']}"
    hidden, shown = operator.get(path).json(), operating.seeing.get(path).json()
    assert (hidden["counts"], hidden["notes"], hidden["error"]) == ({}, None, None)
    assert shown["counts"]["values/demographics.age"]
    assert set(shown["notes"]["missing"]) == {"user_id:1"}
    answer = operator.post(f"{path}/resume", json=reason)
    job = operating.ended(operator, answer)
    assert (job["id"], job["state"], job["who"]) == (found["id"], "done", "operator")


class Compared(Endless):
    """A job whose parameters name attributes."""

    kind = JobKind.SUGGEST

    def __init__(self) -> None:
        self.what = {"attributes": ["demographics.age", "shop.persona"], "sample": 5}

    def pages(self, _progress: Progress, _point: Point) -> Iterator[Point]:
        yield {}


def test_no_job_names_an_attribute_above_the_clearance(operating: Operating) -> None:
    """Found by review: what another caller's job compares was listed with its parameters."""
    with job_runner(operating.idgraph.settings()) as runner:
        runner.run(Compared(), Requester("somebody"))
    (hidden,) = operating.operator.get("/v1/jobs?kind=suggest").json()["items"]
    (shown,) = operating.seeing.get("/v1/jobs?kind=suggest").json()["items"]
    assert hidden["what"] == {"sample": 5}
    assert shown["what"] == {"attributes": ["demographics.age", "shop.persona"], "sample": 5}


def test_a_service_that_stops_interrupts_its_jobs(filled: CommandLine) -> None:
    settings = filled.settings()
    snapshot = PinnedSnapshot("1", with_levels({}))
    with JobThreads(settings, lambda: snapshot) as jobs:
        record = jobs.start(JobKind.RECONCILE, {"rate": 1}, Requester("operator", "slowly"))
        assert record is not None
    with JobThreads(settings, lambda: snapshot) as jobs:
        stopped = jobs.record(record.id)
        assert stopped is not None
        assert stopped.state == "interrupted"
        again = jobs.start(JobKind.RECONCILE, {}, Requester("operator", "again"))
        assert again is not None
        assert again.id == record.id
        eventually(lambda: getattr(jobs.record(record.id), "state", None) == "done")


def test_what_a_killed_service_left_is_removed(filled: CommandLine) -> None:
    settings = filled.settings()
    left = [
        settings.directory / "exports" / ".000000.part",
        *(
            settings.directory / "downloads" / each
            for each in ("000000.begun", "000000.000000", ".000000.000001.part")
        ),
    ]
    left[0].mkdir(parents=True)
    left[1].parent.mkdir()
    for each in left[1:]:
        each.write_bytes(b"sealed")
    with JobThreads(settings, lambda: PinnedSnapshot("1", with_levels({}))):
        assert [each for each in left if each.exists()] == []


def test_an_export_begins_without_an_index(operating: Operating) -> None:
    with opened_to_read(operating.idgraph.settings()) as adapters, pytest.MonkeyPatch.context() as patched:
        known = expected(adapters.index)
        assert known > 2

        def away(*_: object) -> int:
            raise ProfileIndexError("away")

        patched.setattr(type(adapters.index), "count", away)
        assert expected(adapters.index) == 0
