"""`idgraph erase` while the flow takes events of that very person: nothing of them stays, others lose nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.canaries import files_below, leaks
from tests.installation import Installation, Shop, until

pytestmark = [pytest.mark.spark, pytest.mark.long]

GONE = "canary.gone@example.com"
CANARIES = (GONE, "4711 Canaryrow Boulevard", "Canarytown-on-Sea")


def order(number: int, mail: str, **changes: object) -> bytes:
    whole = {
        "order_id": f"beside-{number}",
        "created_at": "2024-03-02T00:00:00Z",
        "customer": {"email": mail, "name": {"first": "Ann", "last": "Lee"}},
        "shipping": {"line1": CANARIES[1], "city": CANARIES[2]} if mail == GONE else {"city": "Springfield"},
        "cart": {"total": "1.50", "items": 1},
    }
    return json.dumps(whole | changes).encode()


def lines(turn: int) -> list[bytes]:
    """Five events of the person, one of them broken, among those of thirty others."""
    first = turn * 100
    return [
        *(order(first + n, GONE) for n in range(4)),
        order(first + 4, GONE, created_at="soon"),
        *(order(first + 10 + n, f"stays-{turn}-{n}@example.com") for n in range(30)),
    ]


def test_nothing_comes_back_and_nothing_else_goes(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop, dead_letters={"max_rate": 1.0})
    erased = threading.Event()
    turns = 0

    def publish() -> None:
        nonlocal turns
        while not (erased.is_set() and turns >= 10) and turns < 400:
            installation.publish("orders", lines(turns))
            turns += 1
            erased.wait(0.1)

    publisher = threading.Thread(target=publish)
    try:
        with installation.running() as process:
            publisher.start()
            until(
                lambda: process.poll() is not None or len(installation.batches()) >= 2,
                what="two micro-batches",
            )
            reported = installation.command("erase", f"email:{GONE}", "--yes", "--json")
            published = turns
            erased.set()
            publisher.join()
            # After it: more of the same person.
            installation.publish("orders", lines(turns))
            turns += 1
            until(
                lambda: sum(batch["events"] for batch in installation.batches()) == 35 * turns,
                what="the rest",
            )
    finally:
        erased.set()

    receipt = json.loads(reported.stdout)
    assert receipt["counts"]["fragments"] == 1
    assert receipt["counts"]["data_keys"] == 1
    assert receipt["counts"]["dead_letters"] >= 1
    assert sum(batch["erased"] for batch in installation.batches()) >= 4 * (turns - published)
    installation.command("lookup", f"email:{GONE}", code=3)
    assert len(installation.export().splitlines()) == 30 * turns
    assert leaks(CANARIES, files_below(tmp_path / ".idgraph")) == []
    # Broken events that came later are dead letters again; given once more, the same command takes them too.
    again = installation.command("erase", f"email:{GONE}", "--yes", "--json")
    assert json.loads(again.stdout)["counts"]["dead_letters"] >= 1
    assert installation.dead_letters() == []
