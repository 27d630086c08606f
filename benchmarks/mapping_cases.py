"""Cases of the mapping benchmark: specs of three sizes, with real payloads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
PAYLOADS = 2_000
PRODUCTS = {
    "slack": "Slack.AuditLogs",
    "gcp": "GCP.AuditLog",
    "gsuite": "GSuite.ActivityEvent",
    "azure": "Azure.MonitorActivity",
    "crowdstrike": "Crowdstrike.FDREvent",
}


class MappingCase(NamedTuple):
    """A chain of operations with payloads as lines of JSON. `java_spec` is what the Java library runs."""

    name: str
    spec: Any
    java_spec: bytes
    lines: list[bytes]


def cases() -> Iterator[MappingCase]:
    """The shop's specs, five security products, one deep webhook.

    The shop's orders are mapped by JMESPath, which Java does not have: there it runs a chain of Jolt operations that
    sets the same keys, which is a case of its own too. Java ignores `epochMs` and `stripLeadingZeros` of the other
    two, so it does less there.
    """
    for source in ("segment", "amplitude"):
        yield _case(f"shop_{source}", _example(source), _example(source), _shop(source))
    jolt_orders = _chain("orders")
    yield _case("shop_orders", _example("orders"), jolt_orders, _shop("orders"))
    yield _case("shop_orders_jolt", jolt_orders, jolt_orders, _shop("orders"))
    for name, product in PRODUCTS.items():
        yield _case(name, _chain(name), _chain(name), _audit(product))
    with gzip.open(HERE / "mapping_data" / "github_pull_request.jsonl.gz") as lines:
        yield _case("webhook", _chain("webhook"), _chain("webhook"), lines.read().splitlines())


def long_spec(lines: int) -> list[Any]:
    """A chain that takes so many lines when it is written out with one key a line."""
    moved = {
        f"group{g}": {f"key{k}": f"out.g{g}.name{k}" for k in range(18)} for g in range(lines * 3 // 4 // 20)
    }
    changed = {"out": {f"g{g}": {f"name{k}?": "=toLower" for k in range(8)} for g in range(lines // 4 // 10)}}
    chain = [{"operation": "shift", "spec": moved}, {"operation": "modify-overwrite-beta", "spec": changed}]
    missing = lines - len(json.dumps(chain, indent=2).splitlines())
    return [*chain, {"operation": "default", "spec": {f"extra{n}": n for n in range(missing - 5)}}]


def _case(name: str, spec: Any, java_spec: Any, lines: list[bytes]) -> MappingCase:
    return MappingCase(name, spec, msgspec.json.encode(java_spec), lines)


def _chain(name: str) -> Any:
    return msgspec.json.decode((HERE / "mapping_specs" / f"{name}.json").read_bytes())


def _example(name: str) -> Any:
    return msgspec.json.decode((EXAMPLES / "retail" / "specs" / f"{name}.json").read_bytes())["operations"]


def _shop(source: str) -> list[bytes]:
    with gzip.open(EXAMPLES / "retail" / "data" / f"{source}.jsonl.gz") as lines:
        return [line.rstrip() for line in islice(lines, PAYLOADS)]


def _audit(product: str) -> list[bytes]:
    lines = (EXAMPLES / "security" / "data" / "audit" / f"{product}.jsonl").read_bytes().splitlines()
    return [msgspec.json.encode(msgspec.json.decode(line)["event"]) for line in lines]
