"""The examples in docs/behaviour.md do what they say."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.behaviour import DerivedDocument
from idgraph.model.index import IndexDocument
from idgraph.model.queries import absolute, in_time_zone
from idgraph.model.query_language import parse_query
from idgraph.model.timelines import Entry
from idgraph.model.triggers import Occurrence, TriggerDocument
from idgraph.projection.segments import changes_at
from sinks.matching import matches
from transforms.behaviour.derivations import compile_derived
from transforms.behaviour.triggers import decide

TEXT = (Path(__file__).parents[2] / "docs" / "behaviour.md").read_text(encoding="utf-8")
KINDS = ("window", "sessions", "pattern", "expression", "model")
BLOCKS = [json.loads(each) for each in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]
EXAMPLES = [each for each in BLOCKS if "gives" in each]


def moment(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def given(example: dict[str, Any], models: dict[str, bytes]) -> None:
    definition = {kind: example[kind] for kind in KINDS if kind in example}
    document = DerivedDocument.model_validate({"name": "d", "path": "d", "version": 1, **definition})
    timelines = {
        activity: [
            Entry(moment(time), "shop", f"e{number}", (1, "spec", 1), fields)
            for number, (time, fields) in enumerate(entries)
        ]
        for activity, entries in example.get("entries", {}).items()
    }
    derivation = compile_derived(document, models.__getitem__)
    found = derivation.of(timelines, example.get("attributes", {}), moment(example["now"]))
    assert found.leaves == example["gives"]
    assert found.changes_at == (moment(example["until"]) if "until" in example else None)


def test_each_kind_has_an_example() -> None:
    assert {kind for each in EXAMPLES for kind in KINDS if kind in each} >= {
        "window",
        "sessions",
        "pattern",
        "expression",
        "model",
    }


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "model" not in each])
def test_examples(example: dict[str, Any]) -> None:
    given(example, {})


@pytest.mark.parametrize("example", [each for each in BLOCKS if "search" in each])
def test_searches_by_the_clock(example: dict[str, Any]) -> None:
    times = {"seen": example["time"]} if "time" in example else {}
    query = in_time_zone(
        parse_query([example["search"]], lambda _: None, times.get), example.get("time_zone", "UTC")
    )
    now, changes = moment(example["now"]), []
    for value, is_found in example["values"]:
        document = IndexDocument("x", 1, {"seen": value})
        assert matches(document, absolute(query, now, times)) is is_found
        changes.append(changes_at(query, document, now, times, matches))
    assert min(each for each in changes if each is not None) == moment(example["until"])


@pytest.mark.parametrize("example", [each for each in BLOCKS if "trigger" in each])
def test_triggers(example: dict[str, Any]) -> None:
    trigger = TriggerDocument.model_validate({"version": 1, **example["trigger"]})
    sent: dict[str, int] = {}
    for number, each in enumerate(example["crossings"]):
        at = moment(each["at"])
        decision = decide(trigger, Occurrence("aa", 2 * number + 1, at, moment(each["since"])), sent, {}, at)
        if decision.outcome == "suppressed":
            assert each["gives"] == f"suppressed: {decision.reason}"
        else:
            sent[decision.id] = at
            until = each["gives"].removeprefix("held until ")
            assert (decision.outcome, decision.due_ms) == (
                ("waiting", at) if until == "sent" else ("held", moment(until))
            )
