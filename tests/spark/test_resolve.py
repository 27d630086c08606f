"""`idgraph resolve --rebuild`: from scratch in Spark as readers and the projection have it, byte for byte.

One store has the shop's events and all documented scenarios whose rules can stand beside each other's: each has
namespaces and sources of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from idgraph.app import metadata_access, wiring
from idgraph.app.cli import app
from idgraph.app.settings.document import load
from idgraph.files import write_atomically
from idgraph.model.identity_events import IdentityEvent, PinDocument
from idgraph.model.identity_rules import SHOP_RULES, IdentityRules
from idgraph.model.index import IndexRules
from idgraph.model.store import Assignment
from idgraph.projection.projection import Projection
from merge.identity.rules import Rules
from sinks.keyring.provider import KeyringFile
from tests.installation import Installation, Shop
from tests.merge.identity.test_persons import CASES, expected, usable
from tests.merge.identity.test_persons import Installation as Scenario
from tests.retail import Pipeline, durable_keys, records, snapshot

MOST_NAMESPACES = 190
"""One document of rules has at most 200."""


def apart(case: dict[str, Any], number: int) -> dict[str, Any] | None:
    """A case with namespaces and sources of its own; None where its rules hold for all namespaces."""
    rules, mark = case["rules"], f"c{number}"
    blocked = rules.get("blocked", [])
    if rules.keys() & {"size_limit", "least_strength"} or any("namespace" not in each for each in blocked):
        return None

    def named(found: list[str]) -> list[str]:
        return [f"{mark}_{found[0]}", found[1]]

    events = [
        each
        | {"source": f"{mark}-{each['source']}"}
        | ({"ids": list(map(named, each["ids"]))} if "ids" in each else {})
        | ({"links": [list(map(named, pair)) for pair in each["links"]]} if "links" in each else {})
        for each in case["events"]
    ]
    shown = {name for each in case["events"] for name, _ in each.get("ids", [])} | rules.get(
        "namespaces", {}
    ).keys()
    namespaces = {}
    for name in shown:
        own = dict(rules.get("namespaces", {}).get(name, {}))
        if rules.get("hub_limit"):
            own.setdefault("hub_limit", rules["hub_limit"])
        if not own:
            continue
        own.setdefault("hub_limit", 1_000_000)
        if "connects" in own:
            own["connects"] = {f"{mark}_{each}": most for each, most in own["connects"].items()}
        namespaces[f"{mark}_{name}"] = own
    return {
        "name": case["name"],
        "rules": {
            "namespaces": namespaces,
            "blocked": [each | {"namespace": f"{mark}_{each['namespace']}"} for each in blocked],
            "limits": [
                each
                | ({"namespace": f"{mark}_{each['namespace']}"} if "namespace" in each else {})
                | (
                    {"namespaces": [f"{mark}_{one}" for one in each["namespaces"]]}
                    if "namespaces" in each
                    else {}
                )
                for each in rules.get("limits", [])
            ],
            "strength": {f"{mark}-{source}": value for source, value in rules.get("strength", {}).items()},
        },
        "events": events,
        "pins": [each | {"pair": list(map(named, each["pair"]))} for each in case.get("pins", [])],
        "expected": [list(map(named, part)) for part in case["expected"]],
    }


def together(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The rules of the shop and of these cases."""
    rules: dict[str, Any] = json.loads(json.dumps(SHOP_RULES)) | {"blocked": [], "limits": [], "strength": {}}
    for case in cases:
        for key, value in case["rules"].items():
            rules[key] = rules[key] | value if isinstance(value, dict) else [*rules[key], *value]
    return rules


def chosen() -> Iterator[dict[str, Any]]:
    """As many as fit into one document, those with few namespaces first."""
    namespaces = len(SHOP_RULES["namespaces"])
    found = [case for number, each in enumerate(CASES) if usable(each) and (case := apart(each, number))]
    for case in sorted(found, key=lambda each: len(each["rules"]["namespaces"])):
        namespaces += len(case["rules"]["namespaces"])
        if namespaces <= MOST_NAMESPACES:
            yield case


def chain(length: int) -> Iterator[dict[str, Any]]:
    """One person whose identifiers are a path: each event shows two of them."""
    for number in range(length):
        ids = [["link", f"{each * 7919 % 10_007}"] for each in (number, number + 1)]
        yield {"id": str(number), "t": "2026-03-01T09:00:00Z", "source": "chain", "ids": ids}


CARTS = [
    {
        "id": str(number),
        "t": "2026-03-01T09:00:00Z",
        "source": "carts",
        "ids": [["a_cart", str(number)], ["a_buyer", "x"]],
    }
    for number in range(6)
]
"""Fragments that are named by what is not counted, of one person whose hub limit is lower."""

UNDONE = [
    {"id": "1", "t": "2026-03-01T09:00:00Z", "source": "undo", "ids": [["undone", "x"], ["other", "y"]]},
    {"id": "2", "t": "2026-03-02T09:00:00Z", "source": "undo", "retracts": "1"},
    {"id": "3", "t": "2026-03-03T09:00:00Z", "source": "later", "ids": [["other", "z"], ["undone", "x"]]},
]
"""A fragment whose only event is taken back, and another one that shows its id."""


def test_from_scratch_as_readers_and_the_projection(tmp_path: Path) -> None:
    cases = list(chosen())
    assert len(cases) >= 50
    stated = together(cases)
    stated["namespaces"] |= {"a_cart": {"counted": False}, "a_buyer": {"hub_limit": 2}}
    rules = IdentityRules.model_validate(stated)
    KeyringFile.create(tmp_path / "keyring.json")
    shop = Shop("http://127.0.0.1:9", "none", tmp_path / "keyring.json")
    installation = Installation(tmp_path / "shop", shop)
    settings = load(installation.config)
    wiring.prepare_directory(settings)
    known = snapshot().model_copy(update={"identity_rules": rules, "identity_rules_version": 1})
    kept = {"etag": '"1"', "snapshot": known.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(settings), json.dumps(kept).encode())
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(tmp_path, keys, resources.store, resources.index, snapshot=known)
        pipeline.process(records(200))
        pipeline.data_keys.close()
        documents = [each for case in cases for each in case["events"]] + UNDONE + CARTS
        scenario = Scenario({"rules": {}, "events": documents})
        scenario.rules, scenario.index_rules = Rules(rules), IndexRules(lambda _: True, identity=rules)
        scenario.store = resources.store
        events = [IdentityEvent.model_validate(each) for each in (*documents, *chain(60))]
        pins = [PinDocument.model_validate(each) for case in cases for each in case["pins"]]
        for number in range(0, len(events), 100):
            scenario.take(events[number : number + 100])
        scenario.pin(pins)
        Projection(resources.store, resources.index, pipeline.rules).sweep()

    def resolved(name: str, *words: str, code: int = 0) -> dict[str, Any]:
        options = ["--output", str(tmp_path / name), "--json", *words]
        done = CliRunner().invoke(app, ["-c", str(installation.config), "resolve", *options])
        assert done.exit_code == code, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    output = ("--output", str(tmp_path / "rebuilt"))
    rebuilt = installation.command("resolve", "--rebuild", "--check", *output, "--json").stdout
    read = resolved("read")
    assert read == json.loads(rebuilt)
    assert (read["misplaced"], read["documents"], read["unreadable"]) == (0, 0, 0)
    content = (tmp_path / "rebuilt").read_bytes()
    assert content == (tmp_path / "read").read_bytes()
    profiles = list(map(json.loads, content.splitlines()))
    assert [each["id"] for each in profiles] == sorted(each["id"] for each in profiles)
    parts = {tuple(each["identifiers"]) for each in profiles}
    for case in cases:
        wanted = {tuple(map(str, part)) for part in expected(case, scenario.rules)}
        assert wanted <= parts, case["name"]
    assert [len(each["fragments"]) for each in profiles if each["id"].startswith("link:")] == [60]
    assert [len(each["fragments"]) for each in profiles if each["id"].startswith("a_cart:")] == [6]
    assert {2} == {len(each["fragments"]) for each in profiles if "undone:x" in each["fragments"]}
    assert any(each["id"].startswith("user_id:") and len(each["fragments"]) > 1 for each in profiles)

    # What a lost assignment left is found, and corrected.
    with wiring.opened(settings) as resources:
        absorbed = next(each for each in resources.store.scan(limit=10_000) if each.profile_id)
        resources.store.assign([Assignment(absorbed.id, absorbed.epoch, "")])
        resources.store.settle(resources.store.outbox())
    found = resolved("read", "--check", code=1)
    assert (found["misplaced"], len(found["examples"]["misplaced"])) == (1, 1)
    assert resolved("read")["misplaced"] == 1
    assert resolved("read", "--check")["misplaced"] == 0
    assert (tmp_path / "read").read_bytes() == content
