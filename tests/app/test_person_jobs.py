"""Access requests and erasures, by command and over HTTP, on real stores: everything of the person, and nothing after."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.shared_state import household_log
from idgraph.app.entrance import project_now
from idgraph.app.jobs.threads import JobThreads
from idgraph.app.wiring import downloads, opened_to_read
from idgraph.jobs.erase.receipt import receipt_hash
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.callers import Scope
from idgraph.model.identity_rules import DEFAULT_RULES
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, PinnedSnapshot
from idgraph.model.specs import SpecDocument
from idgraph.model.store import FragmentWrite
from idgraph.model.timelines import DAY_MS, Entry, PageKey
from idgraph.web.server import serving
from merge.page_codec import encode_page
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.api.households import Acting, Households
from profile_service.api.rights import Rights
from profile_service.service import ProfileService
from sinks.document_folder import DocumentFolder
from tests.app.conftest import CommandLine, keep_snapshot
from tests.app.test_erase_command import (
    CANARIES,
    EVERYTHING,
    MAIL,
    USER,
    broken,
    export,
    filled_once,  # noqa: F401 - a fixture
    ids_of,
    person,
    process,
    seen,
    segment,
)
from tests.canaries import places
from tests.profile_service.api.conftest import Metadata, caller, problem
from tests.retail import CREATED, Pipeline, definition, durable_keys, raw, records, snapshot
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


WHO = f"user_id:{USER}"


class Privacy(NamedTuple):
    """A service over the command line's folder, with a client of each right."""

    idgraph: CommandLine
    officer: httpx.Client
    other: httpx.Client
    reader: httpx.Client
    ruler: httpx.Client
    revealer: httpx.Client

    def job(self, answer: httpx.Response) -> dict[str, Any]:
        """A job that was started, when it has ended."""
        return ended(self.officer, answer)


def ended(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """A job that a client started, when it has ended."""
    assert answer.status_code == 202, answer.text
    path = f"{answer.request.url.path}/{answer.json()['id']}"
    eventually(lambda: client.get(path).json()["state"] != "running")
    found: dict[str, Any] = client.get(path).json()
    return found


@pytest.fixture
def privacy(filled: CommandLine) -> Iterator[Privacy]:
    settings = filled.settings()
    privacy = [Scope.PRIVACY]
    callers = [
        caller("officer", 0, scopes=privacy),
        caller("other", 0, scopes=privacy),
        caller("reader", 100),
        caller("ruler", 100, scopes=[Scope.RULES, Scope.LINKS]),
        caller("revealer", 100, may_reveal=True, scopes=[Scope.RULES]),
    ]
    with ExitStack() as stack:
        adapters = stack.enter_context(opened_to_read(settings))
        following = stack.enter_context(Following(Metadata(snapshot(), callers)))
        jobs = JobThreads(settings, lambda: PinnedSnapshot(*following.edition()))
        audit = wiring.audit_log(settings)
        rights = Rights(jobs=stack.enter_context(jobs))
        project = partial(project_now, adapters, following)
        service = ProfileService(adapters, following, audit, rights=rights, project=project)
        url = stack.enter_context(serving(create_app(service)))
        eventually(following.is_ready)
        clients = [
            stack.enter_context(
                httpx.Client(
                    base_url=url, headers={"Authorization": f"Bearer {name}"}, timeout=60, trust_env=False
                )
            )
            for name in ("officer", "other", "reader", "ruler", "revealer")
        ]
        yield Privacy(filled, *clients)


def complete(document: dict[str, Any]) -> None:
    """All of the canary person, and nobody else."""
    text = json.dumps(document)
    for canary in CANARIES:
        assert canary in text
    names = {each["id"] for each in document["fragments"]}
    assert names > {WHO}
    assert document["profile"]["id"] in names
    assert len(document["fragments"]) == 2
    for each in [document["profile"], *document["fragments"]]:
        assert set(each["provenance"])
        assert all(origin["event"] for origin in each["provenance"].values())
    assert document["links"][0]["evidence"][0]["newest"]["event"]
    assert len(document["history"]) == 2
    certain = [each for each in document["dead_letters"] if each["certain"]]
    assert len(certain) == 3
    assert all(MAIL in each["record"].lower() or USER in each["record"] for each in certain)
    assert "p3@example.com" not in text


def test_the_document_has_the_timelines_and_what_is_derived_of_the_person(filled: CommandLine) -> None:
    entry = Entry(1_710_000_000_000, "shop", "order 1", (1, "orders", 3), {"total": 5})
    with wiring.opened(filled.settings()) as resources:
        store = resources.store
        present = store.read([WHO])[WHO]
        # Of an activity that is in force no more: what is stored is stored.
        pages = {PageKey("retired", entry.time // DAY_MS): encode_page([entry])}
        store.write([FragmentWrite(WHO, present.version, present.state, frozenset(), pages=pages)])
    count = DerivedDocument(name="n", path="told.count", expression="`1`", version=1)
    keep_snapshot(filled.settings(), snapshot().model_copy(update={"derived_attributes": (count,)}))
    (document,) = filled.json("access-request", WHO)
    assert document["timelines"] == [
        {
            "fragment": WHO,
            "activity": "retired",
            "time": entry.time,
            "source": "shop",
            "event": "order 1",
            "spec": "orders",
            "spec_version": 3,
            "fields": {"total": 5},
        }
    ]
    assert document["profile"]["attributes"]["told"] == {"count": 1}
    assert all("told" not in each["attributes"] for each in document["fragments"])
    activity = ActivityDocument(name="retired", version=1)
    keep_snapshot(filled.settings(), snapshot().model_copy(update={"activities": (activity,)}))
    shown = {
        since: len(
            filled.json("timeline", WHO, "--since", since, "--until", "2024-03-10T00:00:00Z", "--json")
        )
        for since in ("2024-03-09T16:00:00Z", str(entry.time), str(entry.time + 1))
    }
    assert list(shown.values()) == [1, 1, 0]
    assert "RFC 3339" in filled("timeline", WHO, "--until", "2024-03-10").output


def test_the_command_writes_all_of_a_person(filled: CommandLine) -> None:
    (document,) = filled.json("access-request", f"email:{MAIL}")
    complete(document)
    file = filled.folder / "document.json"
    assert filled("access-request", WHO, "-o", file).exit_code == 0
    assert json.loads(file.read_bytes()) | {"made_at": ""} == document | {"made_at": ""}
    assert file.stat().st_mode & 0o077 == 0
    assert filled("access-request", WHO, "-o", file).exit_code != 0
    assert filled("access-request", "user_id:nobody").exit_code == 3
    (job, *_) = filled.json("jobs", "list", "--kind", "access", "--json")
    assert job["state"] == "done"
    assert USER not in json.dumps(job)


def test_what_passed_to_another_person_names_nobody_and_is_reported(filled: CommandLine) -> None:
    """Found by a new user: the document named whom an event of the person's fragment was about, too."""
    process(filled.settings(), [segment(40, userId="heir", timestamp="2024-03-20T00:00:00Z")])
    owned = "anonymous_id:anonymous-canary-user-4711"
    assert owned in {f"{each['type']}:{each['value']}" for each in one(filled, "user_id:heir")["identifiers"]}
    (document,) = filled.json("access-request", WHO)
    assert owned not in json.dumps(document)
    (heir,) = filled.json("access-request", "user_id:heir")
    assert [each["identifier"] for each in heir["elsewhere"]] == [owned]
    assert WHO not in json.dumps(heir["elsewhere"])
    (found,) = filled.json("erase", "user_id:heir", "--dry-run", "--json")
    assert found["elsewhere"] == [{"id": WHO, "carries": [owned]}]
    assert f"{WHO} stays" in filled("erase", "user_id:heir", "--dry-run").stderr


def one(idgraph: CommandLine, identifier: str) -> Any:
    (found,) = idgraph.json("lookup", identifier, "--json")
    return found


def test_an_access_request_over_http(privacy: Privacy) -> None:
    body = {"identifier": WHO, "reason": "request 4711 of the person"}
    problem(privacy.reader.post("/v1/access-requests", json=body), 403)
    problem(privacy.officer.post("/v1/access-requests", json=body | {"identifier": "user_id:nobody"}), 404)
    problem(privacy.officer.post("/v1/access-requests", json=body | {"reason": ""}), 422)
    job = privacy.job(privacy.officer.post("/v1/access-requests", json=body))
    assert (job["state"], job["counts"]["fragments"]) == ("done", 2)
    assert job["expires"]
    path = f"/v1/access-requests/{job['id']}"
    complete(privacy.officer.get(f"{path}/download").json())
    # A job belongs to who started it, and is no erasure.
    for refused in (
        privacy.other.get(path),
        privacy.other.get(f"{path}/download"),
        privacy.officer.get(f"/v1/erasures/{job['id']}"),
        privacy.officer.get("/v1/access-requests/..%2F..%2Fkeyring.json/download"),
    ):
        problem(refused, 404)
    directory = privacy.idgraph.settings().directory
    assert not [name for name, _ in seen(directory) if "access" in name or "audit" in name]
    log = (directory / "audit.jsonl").read_text()
    actions = [json.loads(line)["action"] for line in log.splitlines()]
    assert actions == ["keys init", "access request", "download"]
    assert wiring.audit_log(privacy.idgraph.settings()).verify().broken_line is None


def test_a_document_expires_and_goes_with_its_person(privacy: Privacy) -> None:
    body = {"identifier": WHO, "reason": "a request"}
    settings = privacy.idgraph.settings()
    first = privacy.job(privacy.officer.post("/v1/access-requests", json=body))
    late = downloads(settings, DocumentFolder(settings.directory))
    late._clock = lambda: time.time() + settings.profiles.download_hours * 3600 - 60
    late.sweep()
    assert privacy.officer.get(f"/v1/access-requests/{first['id']}/download").status_code == 200
    late._clock = lambda: time.time() + settings.profiles.download_hours * 3600
    late.sweep()
    problem(privacy.officer.get(f"/v1/access-requests/{first['id']}/download"), 404)
    with closing(household_log(settings)) as log, opened_to_read(settings) as adapters:
        households = Households(log, wiring.keyed_hash(adapters))
        household = households.found(
            Acting(WHO, frozenset({wiring.keyed_hash(adapters)(WHO)}), lambda *_: False), "Canary"
        )
    second = privacy.job(privacy.officer.post("/v1/access-requests", json=body))
    assert second["id"] != first["id"]
    asked = privacy.officer.get(f"/v1/access-requests/{second['id']}/download").json()
    assert [(each["household"], each["kind"]) for each in asked["households"]] == [(household, "joined")]
    privacy.idgraph.json("erase", WHO, "--yes", "--json")
    problem(privacy.officer.get(f"/v1/access-requests/{second['id']}/download"), 404)
    assert list((settings.directory / "downloads").iterdir()) == []
    with closing(household_log(settings)) as log:
        assert log.read(household) == []
    assert seen(settings.directory) == []


def test_an_erasure_over_http_and_a_replay_of_all_input(privacy: Privacy) -> None:
    idgraph, settings = privacy.idgraph, privacy.idgraph.settings()
    ids = ids_of(idgraph)
    others = [line for line in export(idgraph) if line["id"] not in ids]
    body: dict[str, Any] = {"identifiers": [WHO, f"email:{MAIL}"]}
    problem(privacy.reader.post("/v1/erasures/preview", json=body), 403)
    problem(privacy.reader.post("/v1/erasures", json=body | {"reason": "x"}), 403)
    nobody = {"identifiers": ["user_id:nobody"]}
    problem(privacy.officer.post("/v1/erasures/preview", json=nobody), 404)
    problem(privacy.officer.post("/v1/erasures", json=nobody | {"reason": "x"}), 404)
    expected = privacy.officer.post("/v1/erasures/preview", json=body).json()["counts"]
    assert len(export(idgraph)) == len(others) + 1
    job = privacy.job(privacy.officer.post("/v1/erasures", json=body | {"reason": "request 4712"}))
    assert job["state"] == "done"
    assert {place: job["counts"][place] for place in EVERYTHING} == {
        place: expected[place] for place in EVERYTHING
    }
    receipt = job["receipt"]
    assert receipt["hash"] == receipt_hash(receipt)
    assert (receipt["complete_from"], job["paths_to_redact"]) == (None, [])
    assert (receipt["erased_by"], receipt["reason"]) == ("officer", "request 4712")
    assert seen(settings.directory) == []
    # The audit log names whom it is about by keyed hash, as the receipt does.
    left = seen(settings.directory, *(each.partition(":")[2] for each in ids))
    assert {name for name, _ in left} <= {"audit.jsonl"}
    problem(privacy.officer.get(f"/v1/profiles/{WHO}"), 404)
    process(settings, [*records(200), *person(), *person(5), *broken()])
    assert export(idgraph) == others
    assert seen(settings.directory) == []


CLINIC = {
    "name": "clinic",
    "source": "orders",
    "operations": {
        "operation": "shift",
        "spec": {"patient": ["_event.patient", "seen.@(1,patient).@(1,diagnosis)"], "id": "_event.id"},
    },
    "id": "_event.id",
    "ordinal": "_event.id",
    "identifiers": [{"type": "patient", "path": "_event.patient", "primary": True}],
    "status": "active",
    "version": 1,
    "created": CREATED,
}
"""The exploit of the security review: keys that are made of values."""


def test_paths_made_of_values_are_reported_and_redacted(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, diagnosis = "canary-person-4711", "canary positive"
    path, settings = f"seen.{name}.{diagnosis}", served.settings()
    defaults = DiscoveryDefaults(detection=DetectionMode.OFF, value_keys=("seen",))
    known = snapshot(specs=[SpecDocument(**CLINIC)], declared=[], defaults=defaults)
    events = [
        raw({"patient": name, "diagnosis": diagnosis, "id": 1}, 1),
        raw({"patient": "other-person", "diagnosis": "nothing", "id": 2}, 2),
    ]
    with wiring.opened(settings) as resources, metadata_access.metadata_client(settings) as client:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=known)
        (output,) = pipeline.map_stage().run(events)
        pipeline.commit_stage().run(output.encoded())
        pipeline.project()
        pipeline.data_keys.close()
        found = [
            SchemaChange(path=where, data_type=kind, source="orders", first_event="file:f#1")
            for where, kind in output.changes
        ]
        assert path in [each.path for each in found]
        client.send(found)
    assert name in served("attributes", "search", "seen").output
    erased = served("erase", f"patient:{name}", "--yes")
    assert erased.exit_code == 0, erased.output
    assert path in erased.stderr
    assert "other-person" not in erased.stderr
    asked = served("attributes", "redact", path, "--reason", "erasure")
    assert asked.exit_code == 0, asked.output
    assert served("attributes", "approve", "1").exit_code != 0
    bob = served("tokens", "add", "bob", "--role", "admin").stdout.strip()
    monkeypatch.setenv("IDGRAPH_METADATA__TOKEN", bob)
    approved = served("attributes", "approve", "1")
    assert approved.exit_code == 0, approved.output
    assert places(settings.directory, (name, diagnosis)) == []
    assert "other-person" in served("attributes", "search", "seen").output


def test_identity_rules_are_previewed_as_the_command_does(privacy: Privacy, tmp_path: Path) -> None:
    rules = DEFAULT_RULES.model_dump(mode="json", exclude_defaults=True)
    rules["namespaces"]["email"]["normalise"] = "exact"
    rules["namespaces"]["email"]["max"] = 1
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(rules))
    (expected,) = privacy.idgraph.json("rules", "preview", file, "--json")
    body = {"rules": rules, "reason": "kiosks"}
    path = "/v1/identity-rules/previews"
    problem(privacy.reader.post(path, json=body), 403)
    problem(privacy.ruler.post(path, json={"rules": {"hub_limit": 0}}), 422)
    unknown = {"rules": {"blocked": [{"namespace": "nobody", "value": "x"}]}}
    assert problem(privacy.ruler.post(path, json=unknown), 422)["pointer"]
    done = ended(privacy.ruler, privacy.ruler.post(path, json=body))
    notes = done["result"].pop("notes")
    assert (done["state"], done["result"]) == ("done", expected)
    assert ["normalise" in each for each in notes] == [True]
    sampled = ended(privacy.ruler, privacy.ruler.post(path, json={"rules": rules, "sample": 5}))
    assert sampled["result"]["errors"] is not None
    problem(privacy.officer.get(f"{path}/{done['id']}"), 403)
    problem(privacy.ruler.get(f"{path}/none"), 404)


def test_a_mapping_spec_is_previewed_as_the_command_does(privacy: Privacy) -> None:
    inbox = privacy.idgraph.folder / "inbox" / "segment"
    inbox.mkdir(parents=True)
    lines = [each.value for each in records(40) if each.source == "segment"]
    (inbox / "x.jsonl").write_bytes(b"\n".join(lines))
    stated = definition("segment", event_type="track")
    file = privacy.idgraph.folder / "draft.json"
    file.write_text(stated.model_dump_json(exclude_defaults=True))
    expected = json.loads(privacy.idgraph("specs", "preview", file, "--json").stdout)
    assert expected["figures"]["errors_new"]["number"] > 0
    path = "/v1/specs/previews"
    body: dict[str, Any] = {"definition": stated.model_dump(mode="json"), "reason": "a trial"}
    problem(privacy.reader.post(path, json=body), 403)
    done = ended(privacy.ruler, privacy.ruler.post(path, json=body))
    assert (done["state"], done["result"], done["done"]) == ("done", expected, len(lines))
    broken = body | {"definition": {**body["definition"], "operations": [{"operation": "nothing"}]}}
    assert problem(privacy.ruler.post(path, json=broken), 422)["pointer"]
    elsewhere = body | {"definition": {**body["definition"], "name": "new", "source": "nowhere"}}
    problem(privacy.ruler.post(path, json=elsewhere), 422)
    problem(privacy.officer.get(f"{path}/{done['id']}"), 403)
    rules = ended(privacy.ruler, privacy.ruler.post("/v1/identity-rules/previews", json={"rules": {}}))
    problem(privacy.ruler.get(f"{path}/{rules['id']}"), 404)
    problem(privacy.ruler.get(f"/v1/identity-rules/previews/{done['id']}"), 404)


def test_a_draft_that_computes_with_protected_values_needs_the_right_to_reveal(privacy: Privacy) -> None:
    """Found by review: without it a preview answered what the draft asked of a protected value."""
    path, inbox = "/v1/specs/previews", privacy.idgraph.folder / "inbox" / "segment"
    inbox.mkdir(parents=True)
    lines = [each.value for each in records(40) if each.source == "segment"]
    (inbox / "x.jsonl").write_bytes(b"\n".join(lines))
    asks = {
        "operation": "modify-overwrite-beta",
        "spec": {"shop": {"letter": "=substring(@(2,identity.email),0,1)"}},
    }
    content = definition("segment").model_dump(mode="json")
    body = {"definition": content | {"operations": [*content["operations"], asks]}, "reason": "a trial"}
    withheld = ended(privacy.ruler, privacy.ruler.post(path, json=body))["result"]
    assert withheld["withheld"]["places"] == ["/operations/3/shop/letter"]
    shown = [each["path"] for each in withheld["attributes"]["changes"]]
    assert (withheld["withheld"]["events"] > 0, withheld["examples"], shown) == (True, [], ["shop.letter"])
    problem(privacy.ruler.post(path, json=body | {"reveal": True}), 403)
    problem(privacy.revealer.post(path, json=body | {"reveal": True, "reason": " "}), 400)
    counted = ended(privacy.revealer, privacy.revealer.post(path, json=body | {"reveal": True}))["result"]
    assert counted["withheld"]["events"] == 0
    log = (privacy.idgraph.settings().directory / "audit.jsonl").read_text()
    assert [log.count(each) for each in ("refused reveal", "reveal in preview")] == [1, 1]


def test_a_decision_over_http_is_found_by_the_next_search(privacy: Privacy) -> None:
    def found() -> list[str]:
        answer = privacy.ruler.get("/v1/search", params={"q": f"identity.email={MAIL}"})
        return sorted(each["id"] for each in answer.json()["items"])

    assert len(found()) == 1
    pins = [{"pair": [WHO, f"email:{MAIL}"], "decision": "never"}]
    etag = privacy.ruler.post("/v1/links/preview", json={"pins": pins}).json()["etag"]
    body = {"pins": pins, "reason": "another person's"}
    done = privacy.ruler.post("/v1/links", json=body, headers={"If-Match": etag})
    assert (done.status_code, done.json()["searchable"]) == (200, True)
    assert len(found()) == 2
    with opened_to_read(privacy.idgraph.settings()) as resources:
        assert resources.store.outbox() == []


@pytest.mark.long
def test_suggestions_are_found_decided_and_left_out_then(privacy: Privacy) -> None:
    path = "/v1/links/suggestions"
    asked = ["demographics.age", "activity.platform"]
    body = {"attributes": asked, "blocking": [[each] for each in asked], "least_weight": -99}
    problem(privacy.officer.post(path, json=body), 403)
    done = ended(privacy.ruler, privacy.ruler.post(path, json=body))
    assert done["state"] == "done"
    mine = f"{path}/{done['id']}"
    first = privacy.ruler.get(mine, params={"limit": 2}).json()
    second = privacy.ruler.get(mine, params={"limit": 2, "cursor": first["next"]}).json()
    items = [*first["items"], *second["items"]]
    assert len({tuple(each["pair"]) for each in items}) == 4
    assert [each["weight"] for each in items] == sorted((each["weight"] for each in items), reverse=True)
    assert all(each["parts"].keys() == set(asked) for each in items)
    decision = {"pins": [{"pair": items[0]["pair"], "decision": "never"}], "reason": "two persons"}
    assert privacy.ruler.post("/v1/links", json=decision).status_code == 200
    assert items[0]["pair"] not in [each["pair"] for each in privacy.ruler.get(mine).json()["items"]]
    problem(privacy.ruler.get(f"{path}/none"), 404)
    protected = ended(privacy.ruler, privacy.ruler.post(path, json={"attributes": ["identity.email", "x"]}))
    assert (protected["state"], protected["items"]) == ("failed", [])
