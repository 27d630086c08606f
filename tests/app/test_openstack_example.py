"""The OpenStack example: its rules on its own records, without Spark."""

from __future__ import annotations

from pathlib import Path

from idgraph.app.demo.example import Example
from idgraph.app.identity_documents import read_records, read_rules
from idgraph.app.settings.document import load
from idgraph.model.identifiers import Identifier
from merge.identity.evidence import SeenEvent
from merge.identity.rules import Rules
from merge.identity.simulation import resolve_seen

LAUNCHPAD = Identifier("launchpad", "goodwin-f8515b")


def test_its_specs_and_rules_unify_the_person_that_the_demo_shows() -> None:
    example = Example("openstack")
    assert str(LAUNCHPAD) == example.shown["show"]
    file = example.identity_rules()
    assert file is not None
    rules = Rules(read_rules(file))
    settings = load(example.folder / "idgraph.toml")
    seen: list[SeenEvent] = []
    for source in settings.sources:
        for data in _data(example.folder / "data", source.name):
            spec = example.folder / "specs" / f"{source.name}.json"
            found = read_records(rules, data, spec, settings.file_source(source.name))
            assert not found.mistakes
            seen += found.events
    resolution = resolve_seen(rules, seen)
    person = next(part for part in resolution.partition if LAUNCHPAD in part)
    assert {"email", "name"} <= {each.type for each in person}
    assert {each.rule for each in resolution.violations if LAUNCHPAD in each.pair} == {"max:launchpad"}
    assert all(sum(each.type == "launchpad" for each in part) <= 1 for part in resolution.partition)


def _data(folder: Path, source: str) -> list[Path]:
    return sorted([*folder.glob(f"{source}.jsonl*"), *folder.glob(f"{source}/*.jsonl*")])
