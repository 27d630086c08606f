"""A release of the chart: its installation, flows as values, upgrades that go well and that do not.

The tests follow each other, and `test_survival.py` follows them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from tests.cluster.shape import BETTER, BROKEN, REPOSITORY, Cluster
from tests.cluster.shop import BACKLOG, FIRST, MORE, SPECS, Events, OneMachine, ask, asking, await_profile

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

ORDERS: dict[str, Any] = {
    "sources": [{"name": "orders", "kind": "kafka", "topics": ["orders"], "type": {"const": "order"}}]
}


def uids(up: Cluster, component: str) -> set[str]:
    return {each["metadata"]["uid"] for each in up.pods(component)}


def images(up: Cluster, component: str) -> set[str]:
    return {each["spec"]["containers"][0]["image"] for each in up.pods(component)}


def since(pod: dict[str, Any], condition: str) -> str:
    """The moment from which a pod is so."""
    (found,) = [
        each["lastTransitionTime"] for each in pod["status"]["conditions"] if each["type"] == condition
    ]
    return str(found)


def test_an_installation_becomes_ready(up: Cluster) -> None:
    code, said = up.release()
    assert code == 0, said + up.describe()
    assert len(up.ready("metadata")) == 1
    assert len(up.ready("profiles")) == up.values["profiles"]["replicas"]
    assert [each["metadata"]["name"] for each in up.ready("flow")] == ["idgraph-flow-shop-0"]


def test_the_driver_gets_its_executors_from_the_api(up: Cluster) -> None:
    executors = up.until(lambda: up.ready("executor"), "executors")
    (owner,) = executors[0]["metadata"]["ownerReferences"]
    assert owner["name"] == "idgraph-flow-shop-0"
    assert executors[0]["spec"]["serviceAccountName"] == "idgraph-worker"


def test_events_become_profiles_that_services_and_pages_show(up: Cluster, events: Events, crm: str) -> None:
    for spec in SPECS:
        up.admin("idgraph", "specs", "apply", str(spec))
    profile = await_profile(up, crm, events.publish("segment", FIRST))
    (name,) = {each["value"] for each in profile["identifiers"] if each["type"] == "user_id"}
    found = f"/v1/search?q=identity.userId%3D{name}"
    up.until(lambda: ask(up, crm, found).json().get("items"), "the search")
    ip = up.nodes.pod("idgraph-metadata").ip
    page = httpx.get(f"https://{ip}:8410/ui/sign-in", verify=False, follow_redirects=True)
    assert page.is_success
    assert "idgraph" in page.text


def test_a_second_flow_is_a_value(up: Cluster, events: Events, crm: str) -> None:
    up.values["flows"]["orders"] = ORDERS
    before = uids(up, "flow")
    code, said = up.release()
    assert code == 0, said + up.describe()
    assert {each["metadata"]["name"] for each in up.ready("flow")} == {
        "idgraph-flow-shop-0",
        "idgraph-flow-orders-0",
    }
    assert before < uids(up, "flow"), "the other one is as it was"
    await_profile(up, crm, events.publish("orders", MORE))


def test_a_changed_flow_ends_well_and_is_replaced_alone(up: Cluster, events: Events, crm: str) -> None:
    others = uids(up, "metadata") | uids(up, "profiles") | {up.nodes.pod("idgraph-flow-shop").uid}
    former = up.nodes.pod("idgraph-flow-orders")
    up.values["flows"]["orders"] = ORDERS | {"settings": {"flow": {"trigger_seconds": 0.1}}}
    newcomer = events.publish("orders", BACKLOG)
    code, said = up.release()
    assert code == 0, said + up.describe()
    assert former.containers[0].code == 0, former.log("flow")[-2000:]
    assert up.nodes.pod("idgraph-flow-orders").uid != former.uid
    assert others < uids(up, "metadata") | uids(up, "profiles") | uids(up, "flow")
    await_profile(up, crm, newcomer)


def test_an_upgrade_replaces_everything_but_a_pause(up: Cluster, events: Events, crm: str) -> None:
    seen = events.publish("segment", MORE)
    await_profile(up, crm, seen)
    up.operator("idgraph", "flows", "pause", "orders", "--why", "a move")
    before = uids(up, "metadata") | uids(up, "flow") | uids(up, "profiles")
    up.values["image"]["tag"] = BETTER
    with asking(up, crm, seen):
        code, said = up.release("--rollback-on-failure")
    assert code == 0, said + up.describe()
    for component in ("metadata", "flow", "profiles"):
        now = up.ready(component)
        assert now
        assert not before & {each["metadata"]["uid"] for each in now}
        assert images(up, component) == {f"{REPOSITORY}:{BETTER}"}
    (metadata,), flows = up.pods("metadata"), up.pods("flow")
    assert all(since(metadata, "Ready") <= since(flow, "Initialized") for flow in flows), "metadata first"
    waiting = events.publish("orders", MORE)
    await_profile(up, crm, events.publish("segment", MORE))
    assert up.is_paused("orders")
    assert ask(up, crm, f"/v1/profiles/{waiting}").status_code == 404
    up.operator("idgraph", "flows", "resume", "orders")
    await_profile(up, crm, waiting)


def test_an_upgrade_that_never_becomes_ready_is_rolled_back_and_nothing_is_lost(
    up: Cluster, events: Events, crm: str
) -> None:
    seen = events.publish("segment", BACKLOG)
    await_profile(up, crm, seen)
    up.values["image"]["tag"] = BROKEN
    with asking(up, crm, seen), ThreadPoolExecutor(1) as pool:
        upgrade = pool.submit(up.release, "--rollback-on-failure", timeout="75s")
        up.until(lambda: f"{REPOSITORY}:{BROKEN}" in images(up, "flow"), "the broken image")
        newcomer = events.publish("segment", MORE)
        code, said = upgrade.result()
    assert code != 0
    up.values["image"]["tag"] = BETTER
    for component in ("metadata", "flow", "profiles"):
        up.until(partial(up.is_whole, component), said)
        assert images(up, component) == {f"{REPOSITORY}:{BETTER}"}
    await_profile(up, crm, newcomer)


def test_the_profiles_are_still_those_of_one_machine(events: Events, one_machine: OneMachine) -> None:
    events.are_those_of(one_machine)


def test_an_upgrade_that_cannot_start_on_what_is_stored_replaces_no_pod(up: Cluster) -> None:
    before = uids(up, "metadata") | uids(up, "flow") | uids(up, "profiles")
    up.values["setup"] = {"args": ["idgraph", "doctor", "--for", "0.0.1"]}
    code, said = up.release("--rollback-on-failure", timeout="25s")
    assert code != 0
    assert "idgraph-setup" in said
    assert before == uids(up, "metadata") | uids(up, "flow") | uids(up, "profiles")
    del up.values["setup"]


def test_a_removed_flow_ends_well_and_a_suspended_one_has_no_pod_and_both_go_on_later(
    up: Cluster, events: Events, one_machine: OneMachine
) -> None:
    flows = [up.nodes.pod(f"idgraph-flow-{name}") for name in ("orders", "shop")]
    for topic in ("orders", "segment"):
        events.publish(topic, BACKLOG)
    stated = up.values["flows"]
    up.values["flows"] = {"shop": stated["shop"] | {"suspended": True}}
    code, said = up.release()
    assert code == 0, said + up.describe()
    for component in ("flow", "executor"):
        up.until(lambda: not up.pods(component), f"no {component}")  # noqa: B023
    assert [each.containers[0].code for each in flows] == [0, 0], [each.log("flow")[-2000:] for each in flows]
    up.values["flows"] = stated
    code, said = up.release()
    assert code == 0, said + up.describe()
    events.are_those_of(one_machine)
