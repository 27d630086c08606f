"""docs/identity.md: each example gives what the page shows, and every rule has one."""

from __future__ import annotations

import json
import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from idgraph.app.cli import app
from idgraph.model.events import RawRecord
from idgraph.model.identity_rules import (
    SHOP_RULES,
    BlockedValue,
    IdentityRules,
    Limit,
    NamespaceRules,
    Normalisation,
    Owner,
)
from idgraph.model.kafka import KafkaSource
from idgraph.model.specs import Evidence, SpecDefinition, SpecDocument
from ingestion.sources.kafka.envelope import frame
from metadata_service.identity_rules import find_problems
from metadata_service.specs.rules import check_spec, packaged_compiler
from tests.docs.shell_pages import DOCS
from tests.retail import CREATED, UNDETECTED, Pipeline, snapshot

TEXT = (DOCS / "identity.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```json\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", TEXT, re.MULTILINE | re.DOTALL)
EXAMPLES = [(document, shown) for document, shown in BLOCKS if '"events"' in document]


@pytest.mark.parametrize(("document", "shown"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_gives_what_the_page_shows(document: str, shown: str) -> None:
    result = CliRunner().invoke(app, ["rules", "try", "-"], input=document)
    assert (result.exit_code, result.stdout, result.stderr) == (0, shown, "")


@pytest.mark.parametrize(
    "word",
    [
        *(name for model in (IdentityRules, NamespaceRules, Limit, Evidence) for name in model.model_fields),
        *(name for name in BlockedValue.model_fields),
        *Normalisation,
        *Owner,
        "retracts",
    ],
)
def test_every_rule_is_on_the_page(word: str) -> None:
    assert f"`{word}`" in TEXT


def test_every_key_of_the_rules_is_in_an_example() -> None:
    used = "".join(document for document, _ in EXAMPLES)
    assert {name for name in IdentityRules.model_fields if f'"{name}"' not in used} == set()


def test_the_default_rules_are_those_of_the_page() -> None:
    documents = [json.loads(document) for document, shown in BLOCKS if not shown]
    assert SHOP_RULES in documents
    assert find_problems(IdentityRules.model_validate(SHOP_RULES)) == []
    for spec in (each for each in documents if "operations" in each):
        check_spec(SpecDefinition.model_validate(spec), packaged_compiler)


ORDERS = {"name": "orders", "kind": "kafka", "topics": ["orders"], "type": {"const": "order"}}
"""A topic of orders, whose key is the order's number."""


def tombstone_specs() -> list[SpecDefinition]:
    """The specs of the page for a topic with tombstones."""
    documents = [json.loads(document) for document, _ in BLOCKS]
    named = [each for each in documents if str(each.get("name")).startswith("order-")]
    assert len(named) == 2
    return [SpecDefinition.model_validate(each) for each in named]


def order_record(offset: int, number: str, value: dict[str, Any] | None) -> RawRecord:
    payload = None if value is None else json.dumps(value).encode()
    framed = frame(number.encode(), [], 1_711_000_000_000 + offset, payload)
    return RawRecord("orders", f"kafka:orders/0/{offset}", framed)


def test_a_tombstone_of_kafka_takes_an_event_back_in_whatever_order(tmp_path: Path) -> None:
    source = KafkaSource.model_validate({**ORDERS, "ordinal": {"timestamp": True}})
    specs = [SpecDocument(**each.model_dump(), version=1, created=CREATED) for each in tombstone_specs()]
    placed = [order_record(n, number, {"email": "ann@x.example"}) for n, number in enumerate(("A", "B", "C"))]
    removed = order_record(3, "B", None)

    def after(number: int, records: list[RawRecord]) -> tuple[list[str], dict[str, tuple[set[str], Any]]]:
        (folder := tmp_path / str(number)).mkdir()
        described = snapshot(specs=specs, declared=[], defaults=UNDETECTED)
        at = Pipeline(folder, sources={"orders": source}, snapshot=described)
        for each in records:
            at.process([each])
        found = {each.id: (set(map(str, each.identifiers)), each.attributes()) for each in at.reader().scan()}
        return at.store.find(email), found

    email, shown = "email:ann@x.example", {"email": "ann@x.example"}
    assert after(0, placed)[1] == {"order_id:A": ({"order_id:A", "order_id:B", "order_id:C", email}, shown)}
    for number, order in enumerate(permutations([*placed, removed]), 1):
        assert after(number, [*order, placed[1]]) == (
            ["order_id:A", "order_id:C"],
            {
                "order_id:A": ({"order_id:A", "order_id:C", email}, shown),
                "order_id:B": ({"order_id:B"}, {}),
            },
        )
