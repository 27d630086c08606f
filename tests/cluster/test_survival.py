"""A release of the chart while nodes are drained, pods die, tokens are replaced and scheduled commands run.

The release is as `test_release.py` has left it. The deaths are those of `tests/crashes`, of pods instead of processes.
"""

from __future__ import annotations

import base64
import re
import signal
import time
from functools import partial

import httpx
import pytest

from tests.cluster.api import path_of
from tests.cluster.pod import MARKS
from tests.cluster.shape import SPACE, Cluster
from tests.cluster.shop import BACKLOG, MORE, Events, OneMachine, ask, asking, await_profile
from tests.crashes.points import Point, dying

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

WRITTEN = Point(
    "the store has written", "worker", "after", "sinks.dynamodb.profiles:DynamoProfileStore.write"
)
INDEXED = Point(
    "the index has written", "worker", "after", "sinks.elasticsearch.index:ElasticsearchProfileIndex.put"
)
PINNED = Point("the snapshot is pinned", "driver", "after", "ingestion.spark.sent_snapshots:BatchPins.pin", 2)


def evict(up: Cluster, name: str) -> bool:
    """Whether the budget allows it (429 otherwise), and the pod is there."""
    about = {"name": name, "namespace": SPACE}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    path = f"/api/v1/namespaces/{SPACE}/pods/{name}/eviction"
    return bool(up.api.call("POST", path, body, but=(404, 429)))


def test_a_budget_keeps_one_pod_for_look_ups(up: Cluster, events: Events, crm: str) -> None:
    seen = events.publish("segment", MORE)
    await_profile(up, crm, seen)
    pods = [each["metadata"]["name"] for each in up.ready("profiles")]
    with asking(up, crm, seen):
        assert [evict(up, name) for name in pods] == [True, False]
        up.until(lambda: evict(up, pods[1]), "the other one")
        up.until(partial(up.is_whole, "profiles"), "two others")
    assert not set(pods) & {each["metadata"]["name"] for each in up.ready("profiles")}


def test_a_drained_node_moves_its_pods_and_the_flow_goes_on(up: Cluster, events: Events, crm: str) -> None:
    seen = events.publish("segment", MORE)
    await_profile(up, crm, seen)
    up.operator("idgraph", "flows", "pause", "orders", "--why", "a move")
    node = up.ready("flow")[0]["spec"]["nodeName"]
    up.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    newcomer = events.publish("segment", BACKLOG)

    def moved() -> bool:
        left = [
            each["metadata"]["name"]
            for each in up.api.items(f"/api/v1/namespaces/{SPACE}/pods")
            if each["spec"].get("nodeName") == node and each["status"]["phase"] in ("Pending", "Running")
        ]
        for name in left:
            evict(up, name)
        return not left

    with asking(up, crm, seen):
        up.until(moved, "the node is empty")
        for component in ("metadata", "flow", "profiles"):
            up.until(partial(up.is_whole, component), component)
    await_profile(up, crm, newcomer)
    assert up.is_paused("orders")
    up.operator("idgraph", "flows", "resume", "orders")
    await_profile(up, crm, events.publish("orders", MORE))
    up.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})


def test_pods_that_are_killed_in_the_middle_of_a_backlog_lose_nothing(
    up: Cluster, events: Events, one_machine: OneMachine
) -> None:
    marks = {point: up.nodes.marks / str(number) for number, point in enumerate((WRITTEN, INDEXED, PINNED))}
    # A process dies where no mark is, and has the test kill its pod: armed in turn.
    for mark in marks.values():
        mark.touch()
    up.nodes.environment |= dying(*(point.death(MARKS / mark.name, True) for point, mark in marks.items()))
    up.nodes.pod("idgraph-flow-shop").containers[0].signal(signal.SIGKILL)
    events.publish("segment", BACKLOG)

    def reached(point: Point) -> None:
        up.until(marks[point].exists, point.words)

    marks[WRITTEN].unlink()
    reached(WRITTEN)
    for executor in executors_of(up, "shop", "Running"):
        up.nodes.pod(executor).containers[0].signal(signal.SIGKILL)

    marks[INDEXED].unlink()
    events.publish("segment", BACKLOG)
    reached(INDEXED)
    # A lost node: everything at once, and nobody says goodbye.
    for name in (*executors_of(up, "shop", "Running"), "idgraph-flow-shop-0"):
        up.api.delete(path_of({"metadata": {"namespace": SPACE, "name": name}}), gracePeriodSeconds=0)

    marks[PINNED].unlink()
    events.publish("segment", BACKLOG)
    reached(PINNED)
    up.nodes.environment.clear()
    up.nodes.pod("idgraph-flow-shop").containers[0].signal(signal.SIGKILL)
    events.are_those_of(one_machine)
    # Those of drivers that died have ended; they are shown as long as the driver's pod is.
    up.until(lambda: len(executors_of(up, "shop", "Pending", "Running")) == 1, "one executor")


def executors_of(up: Cluster, flow: str, *phases: str) -> list[str]:
    """Their names; of these phases."""
    return [
        each["metadata"]["name"]
        for each in up.pods("executor")
        if each["metadata"]["labels"]["idgraph/flow"] == flow and each["status"]["phase"] in phases
    ]


def test_a_replaced_token_is_taken_by_the_flow_that_runs(up: Cluster, events: Events, crm: str) -> None:
    flow = up.nodes.pod("idgraph-flow-shop")
    former = replaced(up, "idgraph-flow-token")
    token = base64.b64decode(up.api.get(secret("idgraph-flow-token"))["data"]["flow.token"]).decode()
    read = partial(flow.command, "flow", "cat", "/etc/idgraph/token/flow.token")
    up.until(lambda: read().stdout == token, "the pod has the token")
    up.admin("idgraph", "tokens", "revoke", former)
    revoked = time.monotonic()

    def confirmed() -> bool:
        """Whether the metadata service has answered the flow since."""
        metrics = httpx.get(f"http://{flow.ip}:9410/metrics").text
        (age,) = re.findall(r"^idgraph_snapshot_age_seconds\{.*\} (\S+)$", metrics, re.MULTILINE)
        return float(age) < time.monotonic() - revoked

    up.until(confirmed, "an answer to the new token")
    await_profile(up, crm, events.publish("segment", MORE))
    assert up.nodes.pod("idgraph-flow-shop").uid == flow.uid


def test_a_replaced_token_is_taken_by_the_services_that_answer(up: Cluster, events: Events, crm: str) -> None:
    seen = events.publish("segment", MORE)
    await_profile(up, crm, seen)
    pods = {each["metadata"]["uid"] for each in up.ready("profiles")}
    with asking(up, crm, seen):
        former = replaced(up, "idgraph-profiles-token")
        token = base64.b64decode(
            up.api.get(secret("idgraph-profiles-token"))["data"]["profiles.token"]
        ).decode()
        for name in (each["metadata"]["name"] for each in up.ready("profiles")):
            read = partial(up.nodes.pod(name).command, "profiles", "cat", "/etc/idgraph/token/profiles.token")
            up.until(lambda: read().stdout == token, "the pod has the token")  # noqa: B023
        up.admin("idgraph", "tokens", "revoke", former)
        # Nobody knows this caller yet: the services ask about them with their own token.
        caller = up.admin(
            "idgraph", "tokens", "add", "later", "--role", "profiles", "--clearance", "100"
        ).strip()
        await_profile(up, caller, seen)
        up.until(
            lambda: all(ask(up, caller, f"/v1/profiles/{seen}").is_success for _ in range(5)), "all pods"
        )
    assert pods == {each["metadata"]["uid"] for each in up.ready("profiles")}


def secret(name: str) -> str:
    return f"/api/v1/namespaces/{SPACE}/secrets/{name}"


def replaced(up: Cluster, name: str) -> str:
    """Have the token in a secret replaced; the former one's name."""

    def named() -> str:
        found = up.api.find(secret(name))
        return str(found["metadata"]["annotations"]["idgraph/token"]) if found else ""

    former = named()
    up.api.delete(secret(name))
    assert up.until(named, "another token") != former
    return former


@pytest.mark.parametrize("name", ["reconcile", "audit", "backup"])
def test_a_scheduled_command_ends_well(up: Cluster, name: str) -> None:
    schedule = up.api.get(f"/apis/batch/v1/namespaces/{SPACE}/cronjobs/idgraph-{name}")
    jobs = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
    job = schedule["spec"]["jobTemplate"] | {"metadata": {"name": f"now-{name}"}}
    up.api.call("POST", jobs, {"apiVersion": "batch/v1", "kind": "Job", **job})
    up.until(lambda: up.api.get(f"{jobs}/now-{name}")["status"].get("succeeded"), f"{name} is done")


def test_after_all_that_the_profiles_are_those_of_one_machine(
    events: Events, one_machine: OneMachine
) -> None:
    events.are_those_of(one_machine)
