"""Every way in which values add up, on the shop's month and through the whole system: exact, and the same whatever
the order, the duplication and the batches."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.canonical import decode, encode, exact_number
from sinks.http.metadata import MetadataClient
from tests.installation import EXAMPLES, Installation, retail
from tests.spark.conftest import declare_counters, serving_shop
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.long]
EDITS = EXAMPLES / "retail" / "edits"


def segment() -> list[bytes]:
    """About a week, duplicates and late ones included."""
    return retail("segment")[:8000]


def expected() -> dict[str, dict[str, Any]]:
    """The acts of each known customer, read from the lines themselves."""
    events: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in segment():
        event = json.loads(line, parse_float=Decimal)
        if event.get("userId") and (user := event["userId"].lstrip("0")):
            events[user][event["messageId"]] = event
    return {user: _expected(list(done.values())) for user, done in events.items()}


def _expected(events: list[dict[str, Any]]) -> dict[str, Any]:
    totals = [
        Decimal(event["properties"]["cartTotal"]) for event in events if event.get("event") == "Purchase"
    ]
    first = min(datetime.fromisoformat(event["timestamp"]).timestamp() for event in events)
    reported: dict[str, Any] = {
        "first": round(first * 1000),
        "devices": sorted({event["anonymousId"] for event in events if event.get("anonymousId")}),
    }
    if totals:
        reported |= {
            "total": exact_number(str(sum(totals))),
            "largest": exact_number(str(max(totals))),
            "orders": len(totals),
        }
    return reported


def shown(profile: dict[str, Any]) -> dict[str, Any]:
    attributes = profile["attributes"]
    spending = attributes.get("spending", {})
    return {
        "first": attributes["activity"]["firstSeenAt"],
        "devices": attributes.get("device", {}).get("seen", []),
        **{name: spending[name] for name in ("total", "largest", "orders") if name in spending},
    }


def test_what_a_month_adds_up_to(tmp_path: Path) -> None:
    with serving_shop(tmp_path) as (shop, _), MetadataClient(shop.url, shop.token) as client:
        declare_counters(client)
        installation = Installation(
            tmp_path / "again", shop, partitions=3, split_bytes=200_000, max_files_per_batch=5
        )
        publish_twice(installation)
        assert not any(batch["dead_letters"] for batch in installation.run())
        tidy = Installation(tmp_path / "once", shop)
        take(tidy, {"segment": segment()})
        assert installation.export("--provenance") == tidy.export("--provenance")
        # By fragment: a person has what was done before a customer number was known, too.
        again, once = (each.export("--fragments", "--provenance") for each in (installation, tidy))
    assert again == once
    profiles = {profile["id"]: profile for profile in map(decode, once.splitlines())}
    wanted = expected()
    found = {user: shown(profiles[f"user_id:{user}"]) for user in wanted}
    assert {user: encode(each) for user, each in found.items()} == {
        user: encode(each) for user, each in wanted.items()
    }
    assert sum("orders" in each for each in wanted.values()) > 100
    bought = next(each for each in profiles.values() if "spending" in each["attributes"])
    evidence = bought["provenance"]["spending.total"]
    assert evidence["policy"] == "sum"
    assert evidence["complete"] is True


def publish_twice(installation: Installation) -> None:
    """Each event in two of the files, in any order."""
    chance = random.Random(2)
    for number in range(12):
        lines = segment()[number % 6 :: 6]
        chance.shuffle(lines)
        installation.publish("segment", lines, f"{number:06d}.jsonl")
