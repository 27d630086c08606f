"""Makes `tests/data/metadata-2.tar.gz`: a metadata database of version 2 with requests of every kind, and what was answered.

    python -m tests.upgrades.make_metadata_2

It was made once, by the idgraph before requests were in one table (commit 2800a56d), and every later one upgrades it
(`test_metadata_2.py`).
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
import tempfile
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from tests.metadata_service.test_users import House

ARCHIVE = Path(__file__).parents[1] / "data" / "metadata-2.tar.gz"
VIEW = {"name": "card", "attributes": {"age": "person.age", "pay": "pay.salary"}}
SPEC = {
    "name": "crm",
    "source": "crm",
    "operations": [{"operation": "shift", "spec": {"u": "u"}}],
    "identifiers": [{"type": "user_id", "path": "u", "primary": True}],
}


def put(client: httpx.Client, path: str, **stated: Any) -> Any:
    answer = client.put(f"/v1/attributes/{path}", json={"path": path, "data_type": "integer", **stated})
    return answer.raise_for_status().json()


def fill(house: House) -> None:
    """Attributes with levels, and requests in every state."""
    growth = house.person("growth", clearance=10)
    officer = house.person("officer", role="privacy", clearance=60)
    publisher = house.person("publisher", role="publisher", clearance=60)
    for path in ("person.age", "pay.salary", "seen.ann"):
        put(house.admin, path, encryption="protected", authorization_level=30)
    house.admin.put("/v1/views/card", json=VIEW).raise_for_status()
    house.admin.put("/v1/specs/crm", json=SPEC).raise_for_status()

    def ask(**wanted: str) -> int:
        until = (datetime.now(UTC) + timedelta(days=30)).isoformat()
        body = {"purpose": "campaign", "until": until} | wanted
        return int(growth.post("/v1/requests", json=body).raise_for_status().json()["id"])

    def step(client: httpx.Client, number: int, call: str, **said: str) -> None:
        client.post(f"/v1/requests/{number}/{call}", json={"reason": "so"} | said).raise_for_status()

    ask(path="person.age")
    step(officer, ask(path="person.age"), "answer", action="granted")
    asked = ask(path="seen.ann")
    step(officer, asked, "answer", action="asked")
    step(growth, asked, "reply")
    step(officer, ask(view="card"), "answer", action="granted")
    step(publisher, ask(spec="crm"), "answer", action="granted")
    step(officer, ask(path="pay.salary"), "answer", action="refused")
    step(growth, ask(path="pay.salary"), "end")
    waiting = put(house.admin, "person.age", encryption="none", authorization_level=30)["id"]
    assert waiting == 1
    approved = put(house.admin, "pay.salary", encryption="none", authorization_level=30)["id"]
    officer.post(f"/v1/policy-changes/{approved}/approve", json={"reason": "seen"}).raise_for_status()
    defaults = {"detection": "off"}
    refused = house.admin.put("/v1/discovery-defaults", json=defaults).raise_for_status().json()["id"]
    officer.post(f"/v1/policy-changes/{refused}/refuse", json={"reason": "no"}).raise_for_status()
    put(house.admin, "seen.ann", encryption="none", authorization_level=30)
    redacted = house.admin.post("/v1/redactions", json={"path": "seen.ann"}).raise_for_status().json()["id"]
    officer.post(f"/v1/policy-changes/{redacted}/approve", json={}).raise_for_status()


def main() -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with ExitStack() as stack:
            house = House(stack, place)
            fill(house)
            found = {
                "at": datetime.now(UTC).isoformat(),
                "policy_changes": house.admin.get("/v1/policy-changes").json()["items"],
                "requests": house.admin.get("/v1/requests").json()["items"],
                "in_force": house.admin.get("/v1/callers").json(),
            }
        with closing(sqlite3.connect(place / "metadata.db")) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        (place / "expected.json").write_text(json.dumps(found))
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            for name in ("metadata.db", "expected.json"):
                archive.add(place / name, name)


if __name__ == "__main__":
    main()
