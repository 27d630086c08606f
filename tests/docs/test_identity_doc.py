"""docs/identity.md: each example gives what the page shows, and every rule has one."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from idgraph.app.cli import app
from idgraph.model.identity_rules import (
    SHOP_RULES,
    BlockedValue,
    IdentityRules,
    Limit,
    NamespaceRules,
    Normalisation,
    Owner,
)
from idgraph.model.specs import Evidence, SpecDefinition
from metadata_service.identity_rules import find_problems
from metadata_service.specs.rules import check_spec, packaged_compiler
from tests.docs.shell_pages import DOCS

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
