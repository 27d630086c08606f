"""The specs of the mapping benchmark give on real payloads what the Java library gives, in the same order."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import jolt
from transforms import compile_spec

pytestmark = pytest.mark.long


ROOT = Path(__file__).parents[3]
AUDIT = ROOT / "examples" / "security" / "data" / "audit"
PRODUCTS = {
    "slack": "Slack.AuditLogs",
    "gcp": "GCP.AuditLog",
    "gsuite": "GSuite.ActivityEvent",
    "azure": "Azure.MonitorActivity",
    "crowdstrike": "Crowdstrike.FDREvent",
}
PACKED = {
    "orders": ROOT / "examples" / "retail" / "data" / "orders.jsonl.gz",
    "webhook": ROOT / "benchmarks" / "mapping_data" / "github_pull_request.jsonl.gz",
}


def payloads(name: str) -> list[Any]:
    if name in PRODUCTS:
        lines = (AUDIT / f"{PRODUCTS[name]}.jsonl").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]
    with gzip.open(PACKED[name]) as packed:
        return [json.loads(line) for line in islice(packed, 300)]


@pytest.mark.parametrize("name", [*PRODUCTS, *PACKED])
def test_same_as_java(name: str) -> None:
    spec = json.loads((ROOT / "benchmarks" / "mapping_specs" / f"{name}.json").read_text())
    inputs = payloads(name)
    try:
        answers = jolt.answers([{"spec": spec, "input": payload} for payload in inputs])
    except jolt.NoOracleError as reason:
        pytest.skip(f"no Java Jolt to compare with: {reason}")
    transform = compile_spec(spec)
    for payload, answer in zip(inputs, answers, strict=True):
        assert json.dumps(transform(payload)) == json.dumps(answer["output"])
