"""Consents over HTTP: what is recorded is an event, and becomes part of the profile by the flow alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.app.publish import publish_lines
from idgraph.model.callers import Scope
from idgraph.model.specs import SpecDocument
from idgraph.web.audit import PURPOSE, AuditFile, AuditLog
from profile_service.api.person_tokens import PersonTokens
from profile_service.api.rights import ConsentInput, Rights
from tests.profile_service.api.conftest import Served, caller, problem, served_here
from tests.profile_service.test_consents import SOURCE, SPEC, decided, made
from tests.retail import UNDETECTED, Pipeline, attribute, raw, snapshot

pytestmark = pytest.mark.slow


PATH = "/v1/profiles/user_id:ann/consents"


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Served]:
    source = SOURCE.model_copy(update={"path": tmp_path / "inbox"})
    pipeline = made(tmp_path / "store", decided(1, "given"), consents_secret=50)
    callers = [caller("officer", 100, scopes=[Scope.PRIVACY]), caller("reader", 0)]
    callers.append(caller("portal", 0, scopes=[Scope.PERSONS]))
    callers.append(caller("linker", 100, scopes=[Scope.LINKS]))

    def publish(lines: Any) -> int:
        publish_lines(source, lines)
        return len(lines)

    with served_here(
        pipeline,
        callers,
        rights=Rights(ConsentInput("consents", "event", publish), tokens=PersonTokens(b"key")),
    ) as found:
        yield found


def put(client: httpx.Client, purpose: str = "marketing", **body: Any) -> httpx.Response:
    return client.put(f"{PATH}/{purpose}", json={"status": "withdrawn", "source": "web", **body})


def flow(pipeline: Pipeline) -> int:
    """Process what was published."""
    files = sorted((pipeline.folder.parent / "inbox").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    pipeline.process([raw(line, number, "consents") for number, line in enumerate(lines)])
    return len(lines)


def test_a_recorded_decision_is_an_event_of_the_flow(recorded: Served) -> None:
    officer, reader = recorded.client("officer"), recorded.client("reader")
    moment = datetime(2024, 3, 1, 12, tzinfo=UTC).isoformat()
    answers = [put(officer, time=moment), put(officer, time=moment)]
    assert [each.status_code for each in answers] == [202, 202]
    # Nothing but the flow writes a profile.
    assert [each["status"] for each in reader.get(PATH).json()["items"]] == ["given"]
    assert flow(recorded.pipeline) == 2
    (found,) = reader.get(PATH).json()["items"]
    assert found == {
        "purpose": "marketing",
        "status": "withdrawn",
        "source": "web",
        "time": "2024-03-01T12:00:00.000+00:00",
        # A retry with the same moment is the same event.
        "event": answers[0].json()["event"],
        "ordinal": 1709294400000,
    }
    assert answers[0].json() == answers[1].json()
    log = recorded.audit.read_text()
    assert log.count('"action":"consent"') == 2
    assert "ann" not in log
    assert (
        AuditLog(AuditFile(recorded.audit), recorded.pipeline.provider.purpose_key(PURPOSE))
        .verify()
        .broken_line
        is None
    )


def test_a_person_records_for_themselves_alone(recorded: Served) -> None:
    issued = recorded.client("portal").post("/v1/person-tokens", json={"identifier": "user_id:ann"})
    ann = recorded.client(issued.json()["token"])
    body = {"status": "withdrawn", "source": "app", "time": "2024-03-01T12:00:00Z"}
    assert ann.put("/v1/me/consents/marketing", json=body).status_code == 202
    problem(ann.put(f"{PATH}/marketing", json=body), 403)
    assert flow(recorded.pipeline) == 1
    (found,) = recorded.client("reader").get(PATH).json()["items"]
    assert (found["status"], found["source"]) == ("withdrawn", "app")


def statuses(recorded: Served, user: str) -> dict[str, str]:
    items = recorded.client("reader").get(f"/v1/profiles/user_id:{user}/consents").json()["items"]
    return {each["purpose"]: each["status"] for each in items}


def test_a_decision_goes_with_whoever_was_asked_when_profiles_split(recorded: Served) -> None:
    bea = {
        "id": "b1",
        "at": 5,
        "identifiers": {"user_id": "bea"},
        "consents": {"research": {"status": "given"}},
    }
    recorded.pipeline.process([raw(bea, 5, "consents")])

    def pin(decision: str) -> None:
        pins = [{"pair": ["user_id:ann", "user_id:bea"], "decision": decision}]
        answer = recorded.client("linker").post("/v1/links", json={"pins": pins, "reason": "x"})
        assert answer.status_code == 200, answer.text

    pin("always")
    for number, user in enumerate(("bea", "ann")):
        issued = recorded.client("portal").post("/v1/person-tokens", json={"identifier": f"user_id:{user}"})
        body = {"status": "given", "source": "app", "time": f"2024-03-01T12:00:0{number}Z"}
        person = recorded.client(issued.json()["token"])
        assert person.put(f"/v1/me/consents/of-{user}", json=body).status_code == 202
    flow(recorded.pipeline)
    # Both count while they are one.
    assert statuses(recorded, "ann") == statuses(recorded, "bea")
    assert {"of-ann", "of-bea"} < statuses(recorded, "ann").keys()
    pin("never")
    assert statuses(recorded, "ann") == {"marketing": "given", "of-ann": "given"}
    assert statuses(recorded, "bea") == {"research": "given", "of-bea": "given"}


@pytest.mark.parametrize("is_timed", [False, True])
def test_a_clock_that_is_ahead_keeps_no_consent_in_force(recorded: Served, is_timed: bool) -> None:
    recorded.pipeline.now = time.time
    officer, now = recorded.client("officer"), datetime.now(UTC)
    ahead = {"status": "given", "time": (now + timedelta(seconds=50)).isoformat()}
    first = put(officer, **ahead)
    assert first.status_code == 202
    flow(recorded.pipeline)
    assert put(officer, **({"time": now.isoformat()} if is_timed else {})).status_code == 202
    flow(recorded.pipeline)
    assert statuses(recorded, "ann") == {"marketing": "withdrawn"}
    # A retry is the same event, and gives nothing again.
    assert put(officer, **ahead).json() == first.json()
    flow(recorded.pipeline)
    assert statuses(recorded, "ann") == {"marketing": "withdrawn"}
    # What was withdrawn before is history, and the later decision counts.
    assert put(officer, status="given").status_code == 202
    assert put(officer, time=(now - timedelta(hours=1)).isoformat()).status_code == 202
    flow(recorded.pipeline)
    assert statuses(recorded, "ann") == {"marketing": "given"}


def test_who_may_not_record_and_what_is_refused(recorded: Served) -> None:
    officer, reader = recorded.client("officer"), recorded.client("reader")
    problem(put(reader), 403)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert problem(put(officer, time=later), 422)["pointer"] == "/time"
    problem(put(officer, status="maybe"), 422)
    problem(put(officer, "no purpose"), 422)
    body = {"status": "given", "source": "web"}
    problem(officer.put("/v1/profiles/user_id:nobody/consents/a", json=body), 404)
    hashed = str(recorded.pipeline.blind_index.identifier(next(iter(profile_of(recorded).identifiers))))
    problem(officer.put(f"/v1/profiles/{hashed}/consents/a", json=body), 404)
    assert not (recorded.pipeline.folder.parent / "inbox").exists()


def profile_of(recorded: Served) -> Any:
    (found,) = recorded.pipeline.reader().scan()
    return found


def test_a_hidden_consent_answers_as_none(recorded: Served) -> None:
    officer, reader = recorded.client("officer"), recorded.client("reader")
    assert put(officer, "secret", time="2024-03-01T12:00:00Z").status_code == 202
    flow(recorded.pipeline)
    purposes = [[each["purpose"] for each in who.get(PATH).json()["items"]] for who in (officer, reader)]
    assert purposes == [["marketing", "secret"], ["marketing"]]


def test_a_history_has_what_each_fragment_decided(tmp_path: Path) -> None:
    """A kiosk shows its device and the user: the consents of both are one person's, and the later one counts."""
    device = {"type": "device_id", "path": "_event.device", "primary": True}
    kiosk = SPEC.model_dump(mode="json") | {"name": "kiosk", "source": "kiosk"}
    kiosk["operations"]["spec"]["_event.device"] = "identifiers.device_id"
    kiosk["identifiers"] = [device, {"type": "user_id", "path": "_event.user"}]
    declared = [attribute("consents.secret", authorization_level=50)]
    known = snapshot(specs=[SPEC, SpecDocument(**kiosk)], declared=declared, defaults=UNDETECTED)
    sources = {"consents": SOURCE, "kiosk": SOURCE.model_copy(update={"name": "kiosk"})}
    pipeline = Pipeline(tmp_path, snapshot=known, sources=sources)
    shown = {"user_id": "ann", "device_id": "till"}
    at_the_till = {"marketing": {"status": "withdrawn", "time": "2024-01-02"}, "secret": {"status": "given"}}
    event = {"id": "k1", "at": 2, "identifiers": shown, "consents": at_the_till}
    pipeline.process([decided(1, "withdrawn"), decided(3, "given"), raw(event, 2, "kiosk")])
    with served_here(pipeline, [caller("all", 100), caller("reader", 0)]) as found:
        told = found.client("all").get("/v1/profiles/device_id:till/history").json()["consents"]
        assert [(each["fragment"], each["purpose"], each["status"], each["ordinal"]) for each in told] == [
            ("device_id:till", "marketing", "withdrawn", 2),
            ("device_id:till", "secret", "given", 2),
            # What she decided first is replaced, and kept nowhere.
            ("user_id:ann", "marketing", "given", 3),
        ]
        assert told[0] | {"fragment": ""} == {
            "fragment": "",
            "purpose": "marketing",
            "status": "withdrawn",
            "source": "kiosk",
            "time": "2024-01-02",
            "event": "k1",
            "ordinal": 2,
        }
        seen = found.client("reader").get("/v1/profiles/user_id:ann/history").json()["consents"]
        assert [each for each in told if each["purpose"] != "secret"] == seen


def test_without_a_source_nothing_is_recorded(tmp_path: Path) -> None:
    pipeline = made(tmp_path / "store", decided(1, "given"))
    with served_here(pipeline, [caller("officer", 100, scopes=[Scope.PRIVACY])]) as found:
        refused = problem(put(found.client("officer")), 422)
        assert "consent_source" in refused["hint"]
