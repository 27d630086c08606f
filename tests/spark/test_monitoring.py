"""Metrics, health and logs of a flow that runs, and whether what watches it names what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.canaries import seen
from tests.deploy.test_watched import OF_SERVICES, watched
from tests.installation import Installation, Shop, retail, until
from tests.support.processes import free_port

pytestmark = [pytest.mark.spark, pytest.mark.long]

CANARIES = ["Kahuna-Wilhelmina", "kahuna.secret@example.com"]


def got(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, ""
    except URLError:
        return 0, ""


def test_a_running_flow_is_watched_and_shows_no_values(tmp_path: Path, shop: Shop) -> None:
    port = free_port()
    installation = Installation(tmp_path, shop, metrics={"port": port})
    order = json.loads(retail("orders")[0])
    order["customer"] = {"email": CANARIES[1], "name": {"first": CANARIES[0], "last": CANARIES[0]}}
    bad = json.dumps({**order, "created_at": CANARIES[0]}).encode()
    installation.publish(
        "orders", [*retail("orders")[:20], json.dumps(order).encode(), bad, CANARIES[0].encode()]
    )
    url = f"http://127.0.0.1:{port}"
    with installation.running("--log-format", "json") as process:
        until(lambda: got(f"{url}/health/live")[0] == 200 or process.poll() is not None, what="an answer")
        until(lambda: installation.batches() or process.poll() is not None, what="the first micro-batch")
        assert got(f"{url}/health/ready")[0] == 200
        metrics = got(f"{url}/metrics")[1]
        reported = installation.batches()
        service = got(f"{shop.url}/metrics")[1]
    for total, field in (
        ("events", "events"),
        ("fragments_written", "written"),
        ("values_sealed", "protected"),
    ):
        assert (
            f'idgraph_{total}_total{{flow="shop"}} {float(sum(each[field] for each in reported))}' in metrics
        )
    names = set(re.findall(r"^(?:# HELP )?(\w+)", metrics, re.MULTILINE))
    assert {each for each in watched() if not each.startswith(OF_SERVICES)} - names <= {
        "idgraph_source_lag_records"
    }
    logged = (installation.folder / "flow.err").read_bytes()
    lines = [json.loads(line) for line in logged.splitlines()]
    messages = [each["message"] for each in lines]
    assert sum(each.startswith("starting Spark;") for each in messages) == 1
    assert messages[-1].startswith("stopped;")
    positions = {each["position"]: each["reason"] for each in lines if each["message"] == "event set aside"}
    assert set(positions) == {"file:orders/000000.jsonl#22", "file:orders/000000.jsonl#23"}
    assert {each["position"] for each in installation.dead_letters()} == set(positions)
    everything = (
        metrics.encode() + service.encode() + logged + (installation.folder / "flow.out").read_bytes()
    )
    assert seen(everything, CANARIES) == []


def test_a_flow_is_ready_once_it_has_looked_and_shows_what_it_lags(tmp_path: Path, shop: Shop) -> None:
    port = free_port()
    installation = Installation(tmp_path, shop, metrics={"port": port})
    url = f"http://127.0.0.1:{port}"

    def value(name: str) -> float:
        found = re.search(rf"^{name}{{[^}}]*}} (\S+)$", got(f"{url}/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else -1.0

    with installation.running() as process:
        until(lambda: got(f"{url}/health/live")[0] == 200 or process.poll() is not None, what="an answer")
        assert got(f"{url}/health/ready")[0] == 503
        # There is no input.
        until(
            lambda: got(f"{url}/health/ready")[0] == 200 or process.poll() is not None, what="the first look"
        )
        assert not installation.batches()
        assert (value("idgraph_ready"), value("idgraph_input_lag_seconds")) == (1, 0)
        assert 0 < value("idgraph_jvm_heap_used_bytes") <= value("idgraph_jvm_heap_max_bytes")
        installation.command("flows", "pause", "shop", "--why", "a test")
        installation.publish("orders", retail("orders")[:20])
        until(lambda: value("idgraph_input_lag_seconds") > 0, what="the lag")
        assert (value("idgraph_ready"), value("idgraph_paused")) == (0, 1)
        assert got(f"{url}/health/ready")[0] == 200
        installation.command("flows", "resume", "shop")
        until(installation.batches, what="the micro-batch")
        until(lambda: value("idgraph_input_lag_seconds") == 0, what="no lag")
        assert value("idgraph_ready") == 1
        assert value("idgraph_source_last_event_timestamp_seconds") > 0
