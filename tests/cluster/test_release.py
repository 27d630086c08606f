"""A release of the chart, from its installation to its upgrades, with what happens to clusters in between.

The tests follow each other: each takes the cluster as the one before has left it.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.topics import publish_all
from idgraph.app import metadata_server
from idgraph.app.settings.document import load
from metadata_service.documents.reading import read_definition
from sinks.http.metadata import MetadataClient
from tests.cluster.shape import BETTER, BROKEN, REPOSITORY, SPACE, Cluster, cluster
from tests.installation import EXAMPLES, Installation, Shop, retail
from tests.servers.requirement import required
from tests.undisturbed import take

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SECRET = f"/api/v1/namespaces/{SPACE}/secrets/idgraph-flow-token"
PATIENCE = 240
SPECS = ("segment", "orders")
FIRST, MORE = 150, 50
"""Events of a source at the beginning, and that come in each later test."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        required("boto3", "idgraph[dynamodb]"),
        required("elasticsearch", "idgraph[elasticsearch]"),
        required("confluent_kafka", "idgraph[kafka]"),
    ):
        context = cluster(tmp_path_factory.mktemp("cluster") / "it")
        running = context.__enter__()
    try:
        yield running
    finally:
        context.__exit__(None, None, None)


class Events:
    """Those of the shop, published part by part, and what there is of their profiles."""

    def __init__(self, up: Cluster) -> None:
        self.up = up
        self.published: dict[str, list[bytes]] = {}

    def publish(self, topic: str, many: int) -> str:
        """The next of a topic, and one of a person whom no event named before; an identifier of theirs."""
        known = self.published.setdefault(topic, [])
        some = retail(topic)[len(known) : len(known) + many]
        newcomer = f"newcomer-{topic}-{len(known)}"
        event: dict[str, Any] = json.loads(some[-1])
        if topic == "segment":
            event |= {"userId": newcomer, "anonymousId": newcomer, "messageId": newcomer}
        else:
            event["order_id"] = event["cart"]["id"] = newcomer
            event["customer"]["email"] = f"{newcomer}@example.com"
        some.append(json.dumps(event).encode() + b"\n")
        publish_all(self.up.brokers, [(topic, some)])
        known += some
        return f"user_id:{newcomer}" if topic == "segment" else f"cart_id:{newcomer}"

    def exported(self) -> list[str]:
        """All profiles with where each value came from."""
        return self.up.operator("idgraph", "export", "--provenance").splitlines()


@pytest.fixture(scope="module")
def events(up: Cluster) -> Events:
    return Events(up)


@pytest.fixture(scope="module")
def crm(up: Cluster) -> str:
    """A caller's token."""
    return up.admin("idgraph", "tokens", "add", "crm", "--role", "profiles", "--clearance", "100").strip()


def ask(up: Cluster, token: str, path: str) -> httpx.Response:
    """A request to one of the profile service's pods."""
    ip = up.nodes.pod("idgraph-profiles").ip
    return httpx.get(
        f"https://{ip}:8420{path}", headers={"Authorization": f"Bearer {token}"}, verify=False, timeout=30
    )


def await_profile(up: Cluster, token: str, identifier: str) -> dict[str, Any]:
    def found() -> Any:
        answer = ask(up, token, f"/v1/profiles/{identifier}")
        return answer.json() if answer.is_success else None

    profile: dict[str, Any] = up.until(found, PATIENCE, f"the profile of {identifier}")
    return profile


def ready(up: Cluster, component: str) -> list[dict[str, Any]]:
    return [
        each
        for each in up.pods(component)
        if "deletionTimestamp" not in each["metadata"]
        and any(
            one["type"] == "Ready" and one["status"] == "True" for one in each["status"].get("conditions", ())
        )
    ]


def since(pod: dict[str, Any], condition: str) -> str:
    """The moment from which a pod is so."""
    (found,) = [
        each["lastTransitionTime"] for each in pod["status"]["conditions"] if each["type"] == condition
    ]
    return str(found)


def is_whole(up: Cluster, component: str) -> bool:
    return len(ready(up, component)) == len(up.pods(component)) > 0


def test_an_installation_becomes_ready(up: Cluster) -> None:
    code, said = up.release()
    assert code == 0, said + up.describe()
    assert len(ready(up, "metadata")) == 1
    assert len(ready(up, "profiles")) == up.values["profiles"]["replicas"]
    assert [each["metadata"]["name"] for each in ready(up, "flow")] == ["idgraph-flow-shop-0"]


def test_the_driver_gets_its_executors_from_the_api(up: Cluster) -> None:
    executors = up.until(lambda: ready(up, "executor"), PATIENCE, "executors")
    (owner,) = executors[0]["metadata"]["ownerReferences"]
    assert owner["name"] == "idgraph-flow-shop-0"
    assert executors[0]["spec"]["serviceAccountName"] == "idgraph-worker"


def test_events_become_profiles_that_services_and_pages_show(up: Cluster, events: Events, crm: str) -> None:
    for name in SPECS:
        up.admin("idgraph", "specs", "apply", str(EXAMPLES / "retail" / "specs" / f"{name}.json"))
    profile = await_profile(up, crm, events.publish("segment", FIRST))
    (name,) = {each["value"] for each in profile["identifiers"] if each["type"] == "user_id"}
    found = f"/v1/search?q=identity.userId%3D{name}"
    up.until(lambda: ask(up, crm, found).json().get("items"), PATIENCE, "the search")
    ip = up.nodes.pod("idgraph-metadata").ip
    page = httpx.get(f"https://{ip}:8410/ui/sign-in", verify=False, follow_redirects=True)
    assert page.is_success
    assert "idgraph" in page.text


def test_a_second_flow_is_a_value(up: Cluster, events: Events, crm: str) -> None:
    source = {"name": "orders", "kind": "kafka", "topics": ["orders"], "type": {"const": "order"}}
    up.values["flows"]["orders"] = {"sources": [source]}
    before = {each["metadata"]["uid"] for each in up.pods("flow")}
    code, said = up.release()
    assert code == 0, said + up.describe()
    assert {each["metadata"]["name"] for each in ready(up, "flow")} == {
        "idgraph-flow-shop-0",
        "idgraph-flow-orders-0",
    }
    assert before < {each["metadata"]["uid"] for each in up.pods("flow")}, "the other one is as it was"
    await_profile(up, crm, events.publish("orders", MORE))


def test_an_upgrade_replaces_everything(up: Cluster, events: Events, crm: str) -> None:
    before = {
        each["metadata"]["uid"] for each in (*up.pods("metadata"), *up.pods("flow"), *up.pods("profiles"))
    }
    up.values["image"]["tag"] = BETTER
    code, said = up.release("--rollback-on-failure")
    assert code == 0, said + up.describe()
    for component in ("metadata", "flow", "profiles"):
        now = ready(up, component)
        assert now
        assert not before & {each["metadata"]["uid"] for each in now}
        assert {each["spec"]["containers"][0]["image"] for each in now} == {f"{REPOSITORY}:{BETTER}"}
    (metadata,), flows = up.pods("metadata"), up.pods("flow")
    assert all(since(metadata, "Ready") <= since(flow, "Initialized") for flow in flows), "metadata first"
    await_profile(up, crm, events.publish("segment", MORE))


def test_an_upgrade_that_never_becomes_ready_is_rolled_back_and_nothing_is_lost(
    up: Cluster, events: Events, crm: str
) -> None:
    profiles = events.exported()
    up.values["image"]["tag"] = BROKEN
    code, said = up.release("--rollback-on-failure", timeout="90s")
    assert code != 0
    up.values["image"]["tag"] = BETTER
    for component in ("metadata", "flow", "profiles"):
        up.until(partial(is_whole, up, component), PATIENCE, said)
        assert {each["spec"]["containers"][0]["image"] for each in ready(up, component)} == {
            f"{REPOSITORY}:{BETTER}"
        }
    assert set(profiles) <= set(events.exported())
    await_profile(up, crm, events.publish("segment", MORE))


def test_a_drained_node_moves_its_pods_and_a_paused_flow_stays_paused(
    up: Cluster, events: Events, crm: str
) -> None:
    up.operator("idgraph", "flows", "pause", "shop", "--why", "a move")
    node = ready(up, "flow")[0]["spec"]["nodeName"]
    up.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def moved() -> bool:
        left = [
            each
            for each in up.api.items(f"/api/v1/namespaces/{SPACE}/pods")
            if each["spec"].get("nodeName") == node
        ]
        left = [each for each in left if each["status"]["phase"] in ("Pending", "Running")]
        for each in left:
            about = {"name": each["metadata"]["name"], "namespace": SPACE}
            # Refused (429) while the budget of the profile service does not allow it.
            path = f"/api/v1/namespaces/{SPACE}/pods/{about['name']}/eviction"
            up.api.call(
                "POST",
                path,
                {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about},
                but=(404, 429),
            )
        assert ready(up, "profiles"), "look-ups go on"
        return not left

    up.until(moved, PATIENCE, "the node is empty")
    for component in ("metadata", "flow", "profiles"):
        up.until(partial(is_whole, up, component), PATIENCE, component)
    health = httpx.get(f"http://{up.nodes.pod('idgraph-flow-shop').ip}:9410/health/ready").json()
    assert health["paused"] is True
    up.operator("idgraph", "flows", "resume", "shop")
    await_profile(up, crm, events.publish("segment", MORE))
    up.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})


def test_a_killed_executor_is_replaced(up: Cluster, events: Events, crm: str) -> None:
    name = up.until(lambda: ready(up, "executor"), PATIENCE, "executors")[0]["metadata"]["name"]
    up.nodes.pod(name).containers[0].signal(signal.SIGKILL)
    await_profile(up, crm, events.publish("segment", MORE))
    await_profile(up, crm, events.publish("orders", MORE))
    assert name not in {each["metadata"]["name"] for each in ready(up, "executor")}


def test_a_replaced_token_is_taken_by_the_flow_that_runs(up: Cluster, events: Events, crm: str) -> None:
    def named() -> str:
        found = up.api.find(SECRET)
        return str(found["metadata"]["annotations"]["idgraph/token"]) if found else ""

    former, begun = named(), up.nodes.pod("idgraph-flow-shop").uid
    up.api.delete(SECRET)
    assert up.until(named, PATIENCE, "another token") != former
    token = base64.b64decode(up.api.get(SECRET)["data"]["flow.token"]).decode()
    flow = up.nodes.pod("idgraph-flow-shop")
    read = partial(flow.command, "flow", "cat", "/etc/idgraph/token/flow.token")
    up.until(lambda: read().stdout == token, PATIENCE, "the pod has the token")
    up.admin("idgraph", "tokens", "revoke", former)
    revoked = time.monotonic()

    def confirmed() -> bool:
        """Whether the metadata service has answered the flow since."""
        metrics = httpx.get(f"http://{flow.ip}:9410/metrics").text
        (age,) = re.findall(r"^idgraph_snapshot_age_seconds\{.*\} (\S+)$", metrics, re.MULTILINE)
        return float(age) < time.monotonic() - revoked

    up.until(confirmed, PATIENCE, "an answer to the new token")
    await_profile(up, crm, events.publish("segment", MORE))
    assert up.nodes.pod("idgraph-flow-shop").uid == begun


@pytest.mark.parametrize("name", ["reconcile", "audit", "backup"])
def test_a_scheduled_command_ends_well(up: Cluster, name: str) -> None:
    schedule = up.api.get(f"/apis/batch/v1/namespaces/{SPACE}/cronjobs/idgraph-{name}")
    jobs = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
    job = schedule["spec"]["jobTemplate"] | {"metadata": {"name": f"now-{name}"}}
    up.api.call("POST", jobs, {"apiVersion": "batch/v1", "kind": "Job", **job})
    up.until(lambda: up.api.get(f"{jobs}/now-{name}")["status"].get("succeeded"), PATIENCE, f"{name} is done")


def test_the_profiles_are_those_of_one_machine(up: Cluster, events: Events, tmp_path: Path) -> None:
    service = tmp_path / "service"
    service.mkdir()
    keyring = up.folder / "keyring.json"
    (service / "idgraph.toml").write_text(f'keyring = "{keyring}"\n')
    settings = load(service / "idgraph.toml")
    with metadata_server.serving_here(settings) as url:
        token = (settings.directory / "admin.token").read_text()
        with MetadataClient(url, token) as client:
            for name in SPECS:
                client.put_spec(read_definition(EXAMPLES / "retail" / "specs" / f"{name}.json"), "tests")
        installation = Installation(tmp_path / "embedded", Shop(url, token, keyring))
        take(installation, events.published)
        expected = installation.export("--provenance").decode().splitlines()
    assert len(expected) > FIRST / 10
    up.until(lambda: events.exported() == expected, PATIENCE, "the same profiles, byte for byte")


def test_a_flow_that_is_removed_ends_and_a_suspended_one_has_no_pod(up: Cluster) -> None:
    del up.values["flows"]["orders"]
    up.values["flows"]["shop"]["suspended"] = True
    code, said = up.release()
    assert code == 0, said + up.describe()
    up.until(lambda: not up.pods("flow"), PATIENCE, "no flow")
    up.until(lambda: not up.pods("executor"), PATIENCE, "no executor")
