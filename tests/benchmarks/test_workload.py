"""Shops that are replayed have people of their own, each of whom has the identifiers that she has in the example."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import pytest

from benchmarks.workload import SOURCES, events, renamed

pytestmark = pytest.mark.long


SHOWN = ("traits", "user_properties", "customer")


def people(shop: int | None) -> dict[str, set[str]]:
    """Addresses in their usual form by customer number; of the orders by themselves."""
    found: dict[str, set[str]] = defaultdict(set)
    for source in SOURCES:
        for each in events(source)[:2000]:
            event: dict[str, Any] = each if shop is None else msgspec.json.decode(renamed(source, each, shop))
            number = event.get("userId") or event.get("user_id")
            part = next((key for key in SHOWN if key in event), "")
            address = event.get(part, {}).get("email", "").strip().lower()
            if address:
                found[str(int(number)) if number else address].add(address)
    return found


def test_no_shop_shares_people_with_another_one() -> None:
    example, first, other = (people(shop) for shop in (None, 1, 21))
    assert first.keys().isdisjoint(other)
    assert set().union(*first.values()).isdisjoint(set().union(*other.values()))
    sizes = sorted(map(len, example.values()))
    assert sizes == sorted(map(len, first.values())) == sorted(map(len, other.values()))
