"""Every documented scenario, in many orders and with events delivered twice (`cases.jsonl` is data, not code)."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from merge.identity.resolve import Resolution
from tests.merge.identity.cases import run

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]

BY_ANOTHER_RULE: dict[str, dict[str, Any]] = {
    "rudderstack-email-to-one-user": {"email": {"connects": {"user_id": 1}}},
    "rudderstack-user-to-two-devices": {"user_id": {"connects": {"device": 2}}},
    "snowplow-contested-belongs-to-nobody": {"apple_idfv": {"owner": "none"}},
}
"""Cases whose rule was added since they were written: by namespace, what to add to their rules."""

LEFT_OUT = {
    "amazon-two-weak-together": "two identifiers together are one: the mapping spec makes a combined identifier",
    "tracardi-two-merge-keys": "the same",
    "mparticle-profile-link": "its answer depends on arrival",
    "senzing-country-names": "synonyms of countries are the mapping spec's",
}


def found(resolution: Resolution) -> list[list[list[str]]]:
    return [[list(each) for each in part] for part in resolution.partition]


def expected(case: dict[str, Any]) -> list[list[list[str]]]:
    return sorted(sorted(part) for part in case["expected"])


def check(case: dict[str, Any], resolution: Resolution) -> None:
    assert found(resolution) == expected(case)
    if case["expressible"] and "violations" in case:
        listed = sorted([*sorted(each[:2]), each[2]] for each in case["violations"])
        assert [
            [list(each.pair.low), list(each.pair.high), each.rule] for each in resolution.violations
        ] == listed


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_persons_and_violations(case: dict[str, Any]) -> None:
    case = copy.deepcopy(case)
    if case["name"] in LEFT_OUT:
        assert found(run(case)) != expected(case)
        return
    for namespace, added in BY_ANOTHER_RULE.get(case["name"], {}).items():
        case["rules"]["namespaces"][namespace].update(added)
    check(case, run(case))
    shuffled = random.Random(case["name"])
    for _ in range(5):
        events = case["events"] * 2
        shuffled.shuffle(events)
        check(case, run({**case, "events": events}))
