"""A flow, two profile services and a command over DynamoDB, each in a directory of its own, and the flow's removed: all see
the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import httpx
import pytest

from idgraph.app import wiring
from idgraph.app.adapters.shared_state import household_log
from idgraph.app.profile_server import serving_here
from idgraph.app.settings.document import load
from idgraph.model.callers import Scope
from idgraph.model.households import HouseholdEntry
from metadata_service.storage.tokens import Role
from tests.installation import Installation, retail
from tests.servers.dynamodb import require_dynamodb
from tests.spark.conftest import serving_shop
from tests.support.patience import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

BAD_LINE = b"{ not JSON"
FIRST = {"segment": 60, "orders": 20}
STAYS_LOCAL = {"flows", "index", "keyring.json", "downloads", "exports"}


class Spread(NamedTuple):
    """Processes of one installation: the flow has run, and its directory is gone."""

    flow: Installation
    replicas: list[httpx.Client]
    command: Installation


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spread]:
    folder = tmp_path_factory.mktemp("spread")
    store = {
        "kind": "dynamodb",
        "table_prefix": folder.name,
        "region": "eu-central-1",
        "endpoint": require_dynamodb(),
    }
    with ExitStack() as stack:
        (folder / "shop").mkdir()
        shop, create = stack.enter_context(serving_shop(folder / "shop"))
        service = create("profiles", Role.SERVICE)
        token = create(
            "officer", Role.PROFILES, clearance=100, may_reveal=True, scopes=[Scope.OPERATE, Scope.PRIVACY]
        )
        flow, one, two, command = (
            Installation(folder / name, shop, store=store) for name in ("flow", "one", "two", "command")
        )
        command.command("store", "create")
        for source, events in FIRST.items():
            flow.publish(source, retail(source)[:events])
        flow.publish("orders", [BAD_LINE])
        assert sum(batch["events"] for batch in flow.run()) == sum(FIRST.values()) + 1
        left = {each.name for each in (flow.folder / ".idgraph").iterdir()}
        assert left <= {"flows", "index"}, "nothing else is in the flow's directory"
        shutil.rmtree(flow.folder / ".idgraph")
        replicas = []
        for each in (one, two):
            with each.config.open("a") as config:
                config.write(f'[profiles]\ntoken = "{service}"\n')
            url = stack.enter_context(serving_here(load(each.config)))
            client = httpx.Client(
                base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False
            )
            replicas.append(stack.enter_context(client))
        eventually(lambda: all(each.get("/health/ready").status_code == 200 for each in replicas))
        yield Spread(flow, replicas, command)


def listed(installation: Installation, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in installation.command(*words, "--json").stdout.splitlines()]


def ended(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """The job that one replica started, as `client` sees its end."""
    assert answer.status_code == 202, answer.text
    path = f"{answer.request.url.path}/{answer.json()['id']}"
    eventually(lambda: client.get(path).json()["state"] != "running")
    found: dict[str, Any] = client.get(path).json()
    return found


def test_dead_letters_are_everywhere_and_once_however_often_they_come(spread: Spread) -> None:
    def seen() -> list[list[str]]:
        replicas = [client.get("/v1/dead-letters").json()["items"] for client in spread.replicas]
        return [[each["id"] for each in found] for found in (*replicas, spread.command.dead_letters())]

    before = seen()
    assert len(before[0]) == 1
    assert before[0] == before[1] == before[2]
    # With an empty directory the flow takes all input again.
    assert sum(batch["events"] for batch in spread.flow.run()) == sum(FIRST.values()) + 1
    assert seen() == before
    shown = spread.command.command("dead-letters", "show", before[0][0], "--reveal").stdout
    assert BAD_LINE.decode() in shown.decode()


def test_a_pause_is_the_same_for_all(spread: Spread) -> None:
    one, two = spread.replicas
    (flow,) = one.get("/v1/flows").json()["items"]
    assert (flow["name"], flow["report"]["state"]) == ("shop", "stopped")
    assert one.post("/v1/flows/shop/pause", json={"reason": "a move"}).status_code == 200
    assert two.get("/v1/flows/shop").json()["pause"]["why"] == "a move"
    (shown,) = listed(spread.command, "flows", "show")
    assert shown["pause"]["why"] == "a move"
    spread.command.command("flows", "resume", "shop")
    assert one.get("/v1/flows/shop").json()["pause"] is None


def test_a_job_of_one_replica_is_shown_and_its_document_given_by_the_other(spread: Spread) -> None:
    one, two = spread.replicas
    job = ended(two, one.post("/v1/jobs", json={"kind": "export", "reason": "a report"}))
    assert (job["state"], job["error"]) == ("done", "")
    assert two.get(f"/v1/jobs/{job['id']}").json()["who"] == "officer"
    document = two.get(f"/v1/jobs/{job['id']}/download")
    assert document.status_code == 200
    assert len(document.content.splitlines()) == job["done"] > 10
    assert job["id"] in [each["id"] for each in listed(spread.command, "jobs", "list")]


def test_an_erasure_is_everywhere_and_survives_the_loss_of_a_directory(spread: Spread) -> None:
    one, two = spread.replicas
    job = ended(one, one.post("/v1/jobs", json={"kind": "export", "reason": "who"}))
    erased = json.loads(two.get(f"/v1/jobs/{job['id']}/download").content.splitlines()[0])["id"]
    settings = load(spread.command.config)
    with wiring.opened_to_read(settings) as adapters:
        key = wiring.keyed_hash(adapters)(erased)
    entry = HouseholdEntry("h", "m", erased, key, 1, "joined", {"name": "a"})
    with closing(household_log(load(spread.flow.config))) as log:
        log.append("h", lambda _: [entry])
    with closing(household_log(settings)) as log:
        assert log.read("h") == [entry]
        erasure = ended(two, one.post("/v1/erasures", json={"identifiers": [erased], "reason": "asked"}))
        assert erasure["state"] == "done"
        assert two.get(f"/v1/erasures/{erasure['id']}").json()["receipt"]["counts"]["fragments"] > 0
        assert log.read("h") == []
    assert two.get(f"/v1/jobs/{job['id']}/download").status_code == 404
    assert two.get(f"/v1/profiles/{erased}").status_code == 404
    shutil.rmtree(spread.flow.folder / ".idgraph", ignore_errors=True)
    spread.flow.run()
    spread.command.command("erase", "--again")
    spread.command.command("lookup", erased, code=3)


def test_all_append_to_one_chain_of_the_audit_log(spread: Spread) -> None:
    spread.command.command("flows", "pause", "shop", "--why", "by a command")
    spread.replicas[0].post("/v1/flows/shop/resume", json={"reason": "by a replica"})
    checks = [client.post("/v1/audit/verify").json() for client in spread.replicas]
    assert checks[0]["broken_line"] is None
    (verified,) = listed(spread.command, "audit", "verify")
    assert checks[0]["head"] == checks[1]["head"] == verified["head"]
    newest = spread.replicas[1].get("/v1/audit?limit=2").json()["items"]
    assert [each["action"] for each in newest] == ["resume flow", "pause flow"]


def test_no_directory_has_what_is_shared(spread: Spread) -> None:
    for folder in spread.command.folder.parent.glob("*/.idgraph"):
        assert {each.name for each in folder.iterdir()} <= STAYS_LOCAL, folder
