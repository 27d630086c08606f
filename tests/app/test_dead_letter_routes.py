"""Dead letters over HTTP, on real stores: who may see them, what of a record is shown, and their replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import pytest

from idgraph.app import wiring
from idgraph.app.dead_letter_desk import dead_letter_desk
from idgraph.app.jobs.context import LocalJobContext
from idgraph.app.jobs.threads import JobThreads
from idgraph.app.wiring import opened_to_read
from idgraph.model.callers import Scope
from idgraph.model.dead_letters import COMMIT, FRAGMENT, DeadLetterReason
from idgraph.model.flows import Flows
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.web.server import serving
from profile_service.api import dead_letters as scanning
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.api.rights import Rights
from profile_service.api.routes import dead_letters
from profile_service.service import ProfileService
from sinks.document_folder import DocumentFolder
from tests.app.conftest import CommandLine
from tests.profile_service.api.conftest import Metadata, caller, problem, with_levels
from tests.retail import Pipeline, durable_keys, raw, snapshot
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


PATH = "/v1/dead-letters"


class Desk(NamedTuple):
    """A service over the command line's folder; `low` has the scope and no clearance, `reader` no scope."""

    idgraph: CommandLine
    metadata: Metadata
    following: Following
    operator: httpx.Client
    low: httpx.Client
    reader: httpx.Client

    def publish(self, newer: MetadataSnapshot) -> None:
        self.metadata.snapshot_now = newer
        self.metadata.version += 1
        eventually(lambda: self.following.edition().etag == str(self.metadata.version))

    def audited(self) -> str:
        return (self.idgraph.settings().directory / "audit.jsonl").read_text()


@pytest.fixture
def desk(filled: CommandLine) -> Iterator[Desk]:
    settings = filled.settings()
    operate = [Scope.OPERATE]
    callers = [caller("operator", 100, scopes=operate), caller("low", 0, scopes=operate)]
    callers.append(caller("reader", 100, scopes=[each for each in Scope if each is not Scope.OPERATE]))
    metadata = Metadata(snapshot(), callers)
    with ExitStack() as stack:
        adapters = stack.enter_context(opened_to_read(settings))
        following = stack.enter_context(Following(metadata))
        jobs = JobThreads(settings, lambda: PinnedSnapshot(*following.edition()))
        desk = stack.enter_context(dead_letter_desk(settings))
        folders = Flows(DocumentFolder(settings.directory))
        rights = Rights(jobs=stack.enter_context(jobs), dead_letters=desk, flows=folders)
        audit = wiring.audit_log(settings)
        service = ProfileService(adapters, following, audit, rights=rights)
        url = stack.enter_context(serving(create_app(service)))
        eventually(following.is_ready)
        clients = [
            stack.enter_context(
                httpx.Client(
                    base_url=url, headers={"Authorization": f"Bearer {name}"}, timeout=60, trust_env=False
                )
            )
            for name in ("operator", "low", "reader")
        ]
        yield Desk(filled, metadata, following, *clients)


def ended(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """A job that was started, when it has ended."""
    assert answer.status_code == 202, answer.text
    path = answer.headers["Location"]
    eventually(lambda: client.get(path).json()["state"] != "running")
    found: dict[str, Any] = client.get(path).json()
    return found


def listed(client: httpx.Client, **wanted: Any) -> dict[str, Any]:
    answer = client.get(PATH, params=wanted)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def put(desk: Desk, count: int, **changes: Any) -> None:
    """Further ones like the one without an id, one millisecond after the other."""
    with wiring.opened(desk.idgraph.settings()) as resources:
        (one,) = resources.dead_letters.scan("missing_id")
        resources.dead_letters.put(
            [one._replace(id=f"more{n:03}", set_aside_at=1_000_000 + n, **changes) for n in range(count)]
        )


def test_only_operators_see_dead_letters(desk: Desk) -> None:
    (one, *_) = listed(desk.operator)["items"]
    choice = {"ids": [one["id"]], "reason": "why"}
    calls = (
        ("GET", PATH, None),
        ("GET", f"{PATH}/{one['id']}", None),
        ("POST", f"{PATH}/replay/preview", {"ids": [one["id"]]}),
        ("POST", f"{PATH}/replay", choice),
        ("POST", f"{PATH}/drop", choice),
    )
    for method, path, body in calls:
        problem(desk.reader.request(method, path, json=body), 403)
    assert len(listed(desk.low)["items"]) == 2
    problem(desk.low.get(f"{PATH}/none"), 404)


def test_a_detail_names_no_attribute_above_the_clearance(desk: Desk) -> None:
    """Found by review: the message of a spec's error has the attribute whose target it is."""
    details = (
        "/operations/0: at 'identity.name.first': lower() expects text, not a number",
        "/1/spec/identity?/name?: unexpected TypeError",
        "at 'orders.last.total': to_number_exact() expects a number",
    )
    with wiring.opened(desk.idgraph.settings()) as resources:
        (one,) = resources.dead_letters.scan("missing_id")
        resources.dead_letters.put(
            [
                one._replace(id=f"n{number}", stage=f"s{number}", detail=each)
                for number, each in enumerate(details)
            ]
        )

    def shown(client: httpx.Client) -> set[str]:
        found = listed(client)
        own = {each["detail"] for each in found["items"]} | {
            group["detail"] for groups in found["groups"].values() for group in groups
        }
        ids = [each["id"] for each in found["items"]]
        return own | {client.get(f"{PATH}/{each}").json()["detail"] for each in ids}

    assert shown(desk.low) & set(details) == {details[2]}
    desk.publish(with_levels({"orders.last.total": 50}))
    assert shown(desk.low) & set(details) == set()
    assert shown(desk.operator) >= set(details)


def test_a_list_groups_and_filters(desk: Desk) -> None:
    put(desk, 30, reason=DeadLetterReason.NOT_JSON, source="segment", stage="decode", spec=None)
    found = listed(desk.operator, limit=3)
    assert (found["scanned"], found["matching"], found["is_complete"]) == (32, 32, True)
    reasons = {each["value"]: each["count"] for each in found["groups"]["reason"]}
    assert reasons == {"not_json": 30, "missing_id": 1, "transform_failed": 1}
    (biggest, *_) = found["groups"]["reason"]
    assert biggest["since"] == datetime.fromtimestamp(1000, UTC).isoformat(timespec="milliseconds")
    assert {each["value"] for each in found["groups"]["source"]} == {"orders", "segment"}
    for wanted, count in (
        ({"reason": "missing_id"}, 1),
        ({"source": "orders"}, 2),
        ({"stage": "decode"}, 30),
        ({"spec": "shop-orders@1"}, 2),
        ({"spec": "shop-orders"}, 2),
        ({"spec": "shop"}, 0),
        ({"since": "2020-01-01T00:00:00Z"}, 2),
        ({"until": "1970-01-01T00:16:40.010+00:00"}, 10),
    ):
        assert listed(desk.operator, **wanted)["matching"] == count, wanted
    for wrong in ({"reason": "none"}, {"since": "yesterday"}, {"more": 1}, {"since": "2020-01-01T00:00:00"}):
        status = 400 if "more" in wrong else 422
        place = problem(desk.operator.get(PATH, params=wrong), status)["errors"][0]["parameter"]
        assert next(iter(wrong)) in place
    problem(desk.operator.get(PATH, params={"cursor": "x"}), 400)


@pytest.mark.parametrize("scanned", [7, 1000])
def test_pages_reach_all_that_match_and_each_once(
    desk: Desk, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(desk, 40, source="segment")
    monkeypatch.setattr(scanning, "MOST_SCANNED", scanned)
    monkeypatch.setattr(dead_letters, "MOST_SCANNED", scanned)
    ids: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        found = listed(desk.operator, source="segment", limit=3, **cursor)
        ids += [each["id"] for each in found["items"]]
        if found["next"] is None:
            break
        cursor = {"cursor": found["next"]}
    assert ids == [f"more{n:03}" for n in reversed(range(40))]
    assert found["is_complete"] is (scanned == 1000)
    counted = desk.operator.post(f"{PATH}/replay/preview", json={"filter": {"source": "segment"}}).json()
    assert counted == {"count": 40, "reasons": {"missing_id": 40}, "partial": 0}


def shown(desk: Desk, client: httpx.Client, reason: str) -> dict[str, Any]:
    (one,) = listed(client, reason=reason)["items"]
    answer = client.get(f"{PATH}/{one['id']}")
    assert answer.status_code == 200, answer.text
    assert "example.com" not in answer.text
    assert "Lee" not in answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_record_is_shown_by_policy_and_by_clearance(desk: Desk) -> None:
    desk.publish(with_levels({"shop.cartItems": 40}))
    found = shown(desk, desk.operator, "transform_failed")
    assert found["payload"]["customer"]["email"]["$protected"] is True
    assert found["payload"]["created_at"] == "soon"
    assert found["cause"] == ["/created_at"]
    seen = {path for some in found["becomes"].values() for path in some}
    hidden = {path for some in shown(desk, desk.low, "transform_failed")["becomes"].values() for path in some}
    assert seen >= hidden
    with_all = json.dumps(found["payload"])
    assert desk.operator.get(f"{PATH}/{found['id']}").json()["spec"] == "shop-orders@1"
    assert with_all.count("$protected") >= 3


def test_without_a_spec_nothing_of_a_record_is_shown_but_keys(desk: Desk) -> None:
    desk.publish(snapshot(specs=[]))
    found = shown(desk, desk.operator, "missing_id")
    assert found["payload"]["cart"]["items"] == {
        "$protected": True,
        "type": "number",
        "like": 100_000_000,
    }
    assert found["becomes"] == {}


def test_what_is_no_event_shows_nothing(desk: Desk) -> None:
    settings = desk.idgraph.settings()
    with wiring.opened(settings) as resources:
        pipeline = Pipeline(settings.directory, durable_keys(settings.directory), snapshot=snapshot())
        resources.dead_letters.put(pipeline.map(raw(b'{"email": "p9@example.com", "na')).dead_letters)
        (one,) = resources.dead_letters.scan("missing_id")
        name = f"{FRAGMENT}email:p9@example.com"
        resources.dead_letters.put([one._replace(id="changes", stage=COMMIT, source="", position=name)])
        pipeline.data_keys.close()
    assert shown(desk, desk.operator, "not_json")["payload"] is None
    answer = desk.operator.get(f"{PATH}/changes")
    assert "p9@" not in answer.text
    assert answer.json()["position"].startswith(f"{FRAGMENT}email:~")
    assert answer.json()["payload"] is None
    assert "p9@" not in desk.operator.get(PATH).text


def test_a_replay_of_all_that_match(desk: Desk) -> None:
    body = {"filter": {"reason": "missing_id"}}
    preview = desk.operator.post(f"{PATH}/replay/preview", json=body).json()
    assert preview == {"count": 1, "reasons": {"missing_id": 1}, "partial": 0}
    for wrong in ({}, body | {"ids": ["x"]}):
        problem(desk.operator.post(f"{PATH}/replay/preview", json=wrong), 422)
    problem(desk.operator.post(f"{PATH}/replay", json=body | {"reason": ""}), 422)
    problem(desk.operator.post(f"{PATH}/replay", json={"ids": ["none"], "reason": "why"}), 404)
    job = ended(desk.low, desk.operator.post(f"{PATH}/replay", json=body | {"reason": "ticket 12"}))
    assert (job["state"], job["counts"], job["why"]) == (
        "done",
        {"replayed": 0, "still_dead": 1},
        "ticket 12",
    )
    assert '"start replay"' in desk.audited()
    assert "ticket 12" in desk.audited()
    assert len(listed(desk.operator)["items"]) == 2


def test_chosen_ones_pass_under_a_repaired_spec(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no metadata service that takes the new attributes.
    monkeypatch.setattr(LocalJobContext, "send", lambda _, __: None)
    (one,) = listed(desk.operator, reason="missing_id")["items"]
    specs = [
        each.model_copy(update={"id": "_event.ordinal", "version": 2}) if each.name == "shop-orders" else each
        for each in snapshot().specs
    ]
    desk.publish(snapshot(2, specs=specs))
    job = ended(
        desk.operator, desk.operator.post(f"{PATH}/replay", json={"ids": [one["id"]], "reason": "why"})
    )
    assert job["counts"]["replayed"] == 1
    assert desk.operator.get(f"{PATH}/{one['id']}").status_code == 404
    assert [each["reason"] for each in listed(desk.operator)["items"]] == ["transform_failed"]


def test_what_is_dropped_is_chosen_as_for_a_replay_and_audited(desk: Desk) -> None:
    put(desk, 4, position="file:orders/june.jsonl#7", source="segment")
    by_file = {"filter": {"file": "june.jsonl"}}
    assert listed(desk.operator, file="june.jsonl")["matching"] == 4
    assert desk.operator.post(f"{PATH}/replay/preview", json=by_file).json()["count"] == 4
    for wrong in (by_file, by_file | {"reason": ""}, {"reason": "junk"}):
        problem(desk.operator.post(f"{PATH}/drop", json=wrong), 422)
    nothing = desk.operator.post(f"{PATH}/drop", json={"ids": ["none"], "reason": "junk"})
    assert nothing.json() == {"dropped": 0}
    some = desk.low.post(f"{PATH}/drop", json={"ids": ["more001", "gone"], "reason": "junk"})
    assert (some.status_code, some.json()) == (200, {"dropped": 1})
    rest = desk.operator.post(f"{PATH}/drop", json=by_file | {"reason": "ticket 77"})
    assert rest.json() == {"dropped": 3}
    assert desk.audited().count('"drop dead letters"') == 2
    assert "ticket 77" in desk.audited()
    assert listed(desk.operator)["matching"] == 2


def test_a_filter_by_file_finds_nobody_by_the_name_of_a_fragment(desk: Desk) -> None:
    """Answers show a keyed hash in its place, and a filter must not be a way to try names."""
    put(desk, 1, stage=COMMIT, source="", position=f"{FRAGMENT}email:p9@example.com/x#1")
    for name in ("email:p9@example.com/x", "p9@example.com/x", "x", f"{FRAGMENT}email:p9@example.com/x"):
        assert listed(desk.operator, file=name)["matching"] == 0


def test_with_the_last_dead_letter_of_a_fragment_goes_its_key_over_http_too(desk: Desk) -> None:
    name = "user_id:set-aside"
    with wiring.opened(desk.idgraph.settings()) as resources:
        resources.data_keys.fetch([name], create=True)
        resources.store.erase([name], 1)
    put(desk, 1, stage=COMMIT, source="", position=FRAGMENT + name, reason=DeadLetterReason.CONFLICT)
    dropped = desk.operator.post(f"{PATH}/drop", json={"filter": {"reason": "conflict"}, "reason": "junk"})
    assert dropped.json() == {"dropped": 1}
    with wiring.opened(desk.idgraph.settings()) as resources:
        assert resources.data_keys.existing([name]) == set()
