"""Metrics, health and logs of a flow that runs, and whether what watches it names what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.canaries import seen
from tests.installation import Installation, Shop, retail, until
from tests.support.processes import free_port

pytest.importorskip(
    "prometheus_client", reason="prometheus_client is not installed: pip install -e .[metrics]"
)

pytestmark = [pytest.mark.spark, pytest.mark.long]

DEPLOY = Path(__file__).parents[2] / "deploy"
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


def watched() -> dict[str, set[str]]:
    """The metrics that each file names."""
    dashboard = json.loads((DEPLOY / "grafana" / "idgraph.json").read_bytes())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    expressions = re.findall(r"^ *expr: (.*)$", alerts, re.MULTILINE)
    reasons = re.findall(r"^ *reason: .{40,}$", alerts, re.MULTILINE)
    assert len(expressions) == len(reasons) == alerts.count("- alert:"), (
        "each says why its threshold is what it is"
    )
    return {
        "dashboard": set(re.findall(r"\bidgraph_\w+", " ".join(shown))),
        "alerts": set(re.findall(r"\bidgraph_\w+", " ".join(expressions))),
    }


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
    names = set(re.findall(r"^(?:# HELP )?(idgraph_\w+)", metrics + service, re.MULTILINE))
    # Both services count their requests by the same code.
    names |= {each.replace("idgraph_metadata_request", "idgraph_profiles_request") for each in names}
    for file, wanted in watched().items():
        assert len(wanted) > 10, file
        assert wanted - names == set(), f"{file} names what no flow has"
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
