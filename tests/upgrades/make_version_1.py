"""Makes `tests/data/version-1.tar.gz`: one small set of everything that idgraph keeps, in the formats of version 1.

    .venv/bin/python -m tests.upgrades.make_version_1

It was made once, by the idgraph that froze these formats, and every later one opens it (`test_version_1.py`). Whoever changes a
format afterwards writes a migration, and does not run this again. Beside the files it has `expected.json`, what that idgraph
answered over them.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

ARCHIVE = Path(__file__).parents[1] / "data" / "version-1.tar.gz"
PORT = "@PORT@"
LEFT_OUT = ("spark", "spark.log", "downloads", "report.json")
CONFIG = f"""\
[metadata]
url = "http://127.0.0.1:{PORT}"

[flow]
master = "local[1]"

[[sources]]
name = "crm"
path = "inbox/crm"
type = {{ const = "customer" }}

[[sources]]
name = "helpdesk"
path = "inbox/helpdesk"
type = {{ path = "event" }}
"""
ATTRIBUTES = [
    {
        "path": "identity.email",
        "data_type": "string",
        "encryption": "searchable",
        "classification": "confidential",
        "identifiable": True,
    },
    {
        "path": "identity.name",
        "data_type": "string",
        "encryption": "protected",
        "classification": "confidential",
        "identifiable": True,
        "indexable": False,
    },
    {"path": "support.tickets", "data_type": "integer", "policy": "count"},
    {"path": "support.topics", "data_type": "array", "policy": "union"},
]


def _spec(name: str, source: str, operations: dict[str, str], own: dict[str, Any]) -> dict[str, Any]:
    event = {"_event.id": "key", "_event.ordinal": "epoch_ms(at)"}
    return {
        "name": name,
        "source": source,
        "status": "active",
        "operations": [{"operation": "jmespath", "spec": event | operations}],
        "id": "_event.id",
        "ordinal": "_event.ordinal",
        **own,
    }


SPECS = [
    _spec(
        "crm-customers",
        "crm",
        {
            "identity.customer": "to_string(id)",
            "identity.email": "email",
            "identity.name": "name",
            "account.plan": "plan",
        },
        {
            "identifiers": [
                {"type": "customer", "path": "identity.customer", "primary": True},
                {"type": "email", "path": "identity.email"},
            ]
        },
    ),
    _spec(
        "helpdesk-tickets",
        "helpdesk",
        {
            "identity.email": "email",
            "support.tickets": "`1`",
            "support.topics": "[topic]",
            "support.lastTicket": "{topic: topic, minutes: minutes}",
        },
        {
            "event_type": "ticket.opened",
            "identifiers": [{"type": "email", "path": "identity.email", "primary": True}],
        },
    ),
]
PLANS, TOPICS = ("free", "pro", "team"), ("invoice", "login", "refund", "export")


def customers() -> list[dict[str, Any]]:
    """Twelve persons; of 11 nothing is left."""
    return [
        {
            "id": number,
            "key": f"crm-{number}",
            "at": f"2026-10-{number + 10}T08:00:00Z",
            "name": f"Kim Vale {number}",
            "email": f"kim.{number}@example.com",
            "plan": PLANS[number % 3],
        }
        for number in range(1, 13)
    ]


def tickets() -> list[dict[str, Any]]:
    """Two of most persons, one of somebody whom the CRM does not know, and one that no spec maps."""
    opened = [
        {
            "event": "ticket.opened",
            "key": f"ticket-{number}",
            "at": f"2026-11-{number % 20 + 1:02}T09:30:00Z",
            "email": f"kim.{number % 13 + 1}@example.com",
            "topic": TOPICS[number % 4],
            "minutes": number * 7 % 60,
        }
        for number in range(24)
    ]
    return [*opened, opened[0] | {"event": "ticket.closed", "key": "closed-0"}]


class Folder:
    """A folder with a configuration, and idgraph's commands in it."""

    def __init__(self, place: Path, port: int) -> None:
        self.place = place
        self.url = f"http://127.0.0.1:{port}"
        (place / "idgraph.toml").write_text(CONFIG.replace(PORT, str(port)))

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "idgraph.app.cli", *words]

    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("IDGRAPH_")}
        root = str(Path(__file__).parents[2])
        return own | {"PYTHONPATH": root}

    def run(self, *words: str) -> str:
        """Standard output of a command that succeeds."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.place,
            env=self.environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{words}: code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*words).splitlines()]

    @contextmanager
    def serving(self) -> Iterator[httpx.Client]:
        """The metadata service, and its admin."""
        service = subprocess.Popen(
            self.command("serve", "metadata"),
            cwd=self.place,
            env=self.environment(),
            stderr=subprocess.DEVNULL,
        )
        try:
            with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as client:
                for _ in range(600):
                    try:
                        if client.get("/health/ready").is_success:
                            break
                    except httpx.TransportError:
                        pass
                    time.sleep(0.1)
                token = (self.place / ".idgraph" / "admin.token").read_text().strip()
                client.headers["Authorization"] = f"Bearer {token}"
                yield client
        finally:
            service.terminate()
            service.wait(60)

    def publish(self, source: str, events: list[dict[str, Any]]) -> None:
        lines = self.place / f"{source}.jsonl"
        lines.write_text("".join(f"{json.dumps(each)}\n" for each in events))
        self.run("publish", source, str(lines))
        lines.unlink()


def fill(folder: Folder) -> dict[str, Any]:
    """Something of every kind; returns what is answered over it."""
    place = folder.place
    folder.run("keys", "init")
    with folder.serving() as admin:
        (place / "attributes.json").write_text(json.dumps(ATTRIBUTES))
        folder.run("attributes", "apply", "attributes.json", "--reason", "personal data")
        for spec in SPECS:
            (place / f"{spec['name']}.json").write_text(json.dumps(spec))
        folder.run("specs", "apply", *(f"{spec['name']}.json" for spec in SPECS), "--reason", "first")
        view = {"name": "support", "attributes": {"plan": "account.plan", "topics": "support.topics"}}
        admin.put("/v1/views/support", params={"reason": "helpdesk"}, json=view).raise_for_status()
        segment = {"name": "paying", "q": "account.plan=pro"}
        admin.put("/v1/segments/paying", params={"reason": "campaign"}, json=segment).raise_for_status()
        folder.publish("crm", customers())
        folder.publish("helpdesk", tickets())
        folder.run("run", "--until-done")
        folder.publish(
            "crm", [customers()[0] | {"key": "crm-1b", "at": "2026-11-20T08:00:00Z", "plan": "team"}]
        )
        folder.run("run", "--until-done")
    folder.run("links", "unlink", "customer:5", "email:kim.5@example.com", "--reason", "two persons")
    folder.run("erase", "customer:11", "email:kim.11@example.com", "--yes")
    folder.run("keys", "rotate")
    _household(place)
    return answers(folder)


def _household(place: Path) -> None:
    from idgraph.model.households import HouseholdEntry
    from sinks.sqlite.households import SqliteHouseholdLog

    entry = HouseholdEntry("h1", "m1", "customer:1", "k1", 1_790_000_000_000, "joined", {"name": "Vale"})
    with closing(SqliteHouseholdLog(place / ".idgraph" / "households.db")) as log:
        log.append("h1", lambda _: [entry])


def answers(folder: Folder) -> dict[str, Any]:
    """What commands say of the persons in a folder, without what a later version may word or count differently."""
    return {
        "lookup": [_content(each) for each in folder.json("lookup", "customer:3", "--json", "--reveal")],
        "by email": [_content(each) for each in folder.json("lookup", "email:kim.7@example.com", "--json")],
        "apart": [_content(each) for each in folder.json("lookup", "email:kim.5@example.com", "--json")],
        "pro": sorted(_content(each)["id"] for each in folder.json("search", "account.plan=pro", "--json")),
        "refund": folder.run("search", "refund", "--count"),
        "email": folder.run("search", "identity.email=kim.9@example.com", "--count"),
        "export": sorted((_content(each) for each in folder.json("export")), key=lambda each: each["id"]),
        "dead letters": sorted(each["reason"] for each in folder.json("dead-letters", "list", "--json")),
        "jobs": sorted({each["kind"] for each in folder.json("jobs", "list", "--json")} - {"reindex"}),
    }


def _content(profile: dict[str, Any]) -> dict[str, Any]:
    return {name: profile[name] for name in ("id", "identifiers", "attributes")}


def pack(place: Path, expected: dict[str, Any], archive: Path) -> None:
    """The files of a folder in which nothing runs."""
    for file in place.glob(".idgraph/*.db"):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (place / "idgraph.toml").write_text(CONFIG)
    (place / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True))

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(entry.name).name
        if name in LEFT_OUT or name.endswith((".lock", "-wal", "-shm")):
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:gz") as packed:
        for name in ("expected.json", "idgraph.toml", ".idgraph"):
            packed.add(place / name, name, filter=kept)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="version-1-"))
    try:
        folder = Folder(place, free_port())
        pack(place, fill(folder), ARCHIVE)
        print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
