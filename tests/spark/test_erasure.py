"""A flow that runs over the same files again does not bring an erased person back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, retail

pytestmark = [pytest.mark.spark, pytest.mark.long]


def order(number: int, mail: str) -> bytes:
    return json.dumps(
        {
            "order_id": f"erased-{number}",
            "created_at": "2024-03-02T00:00:00Z",
            "customer": {"email": mail, "name": {"first": "Ann", "last": "Lee"}},
            "shipping": {"line1": "1 Main St", "city": "Springfield"},
            "cart": {"total": "1.50", "items": 1},
        }
    ).encode()


def test_the_same_files_again_do_not_bring_an_erased_person_back(tmp_path: Path, shop: Shop) -> None:
    # Several tasks and a shuffle at the second run, one task at the first.
    installation = Installation(tmp_path, shop, split_bytes=20_000)
    installation.publish("segment", retail("segment")[:200])
    installation.publish(
        "orders", [*retail("orders")[:50], *(order(n, "gone@example.com") for n in range(3))]
    )
    installation.run()
    lookup = ("lookup", "--json", "email:gone@example.com")
    (profile,) = installation.command(*lookup).stdout.splitlines()
    fragment = json.loads(profile)["id"]
    others = [line for line in installation.export("--reveal").splitlines() if fragment.encode() not in line]

    erased = installation.command("erase", "email:gone@example.com", "--yes", "--json")
    assert json.loads(erased.stdout)["counts"]["fragments"] == 1
    assert installation.export("--reveal").splitlines() == others

    shutil.rmtree(tmp_path / ".idgraph" / "flows" / "shop" / "checkpoint")
    batches = installation.run()
    assert sum(batch["erased"] for batch in batches) == 3
    assert sum(batch["written"] for batch in batches) == 0
    assert max(batch["tasks"] for batch in batches) > 1
    assert installation.export("--reveal").splitlines() == others
    installation.command(*lookup, code=3)
    assert installation.dead_letters() == []
