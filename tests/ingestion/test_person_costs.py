"""What persons cost, counted: each component is given its own, and is read a fixed number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from idgraph.model.identity_events import IdentityEvent
from idgraph.model.pins import PinRecord
from ingestion.stages.resolve import JoinedFragment, resolved_profiles
from merge.identity import persons, resolve
from merge.identity.persons import Persons
from tests.ingestion.test_persons import Installation

RULES = {"namespaces": {"user": {"priority": 1, "unique": True}, "device": {"owner": "first"}}}


def installation_of(*shown: Sequence[str], **rules: Any) -> Installation:
    installation = Installation({"rules": {**RULES, **rules}})
    installation.take(
        IdentityEvent.model_validate(
            {
                "id": f"e{place}",
                "t": "2026-03-02T09:00:00Z",
                "source": "web",
                "ids": [name.split(":") for name in names],
            }
        )
        for place, names in enumerate(shown)
    )
    return installation


def counting(through: Callable[..., Any], sizes: list[int], place: int = 0) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        sizes.append(len(arguments[place]))
        return through(*arguments)

    return counted


def test_a_component_is_given_its_own_pins_and_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 20
    installation = installation_of(
        *([f"user:{k}", f"device:{k}"] for k in range(count)),
        *([f"user:{k}x{place}", f"phone:{k}"] for k in range(count) for place in range(4)),
        hub_limit=2,
    )
    store = installation.store
    store.add_pins([PinRecord(f"device:{k}", f"user:{k}", 1, "never") for k in range(count)])
    pins: list[int] = []
    hubs: list[int] = []
    monkeypatch.setattr(persons, "resolve", counting(counting(resolve.resolve, pins, 2), hubs, 4))
    ids = list(store.ids())
    assert len(Persons(store, installation.rules).around(ids).components) == 5 * count
    assert (sum(pins), sum(hubs)) == (count, 4 * count)
    pins.clear()
    rows = [JoinedFragment(place, each, ()) for place, each in enumerate(ids)]
    assert len(list(resolved_profiles(store, rows, installation.rules, str))) == 5 * count
    assert sum(pins) == count
