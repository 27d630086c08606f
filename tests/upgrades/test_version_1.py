"""Files of version 1 of every format are opened by this idgraph as they are, and it goes on over them.

A failure here means that a format has changed without a migration: write one (`docs/adr/0051-versions-of-formats.md`).
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from idgraph.app.cli import app
from idgraph.app.metadata_server import serving_here
from idgraph.app.settings.document import load
from sinks.tantivy.folder import LAYOUT
from tests.upgrades.make_version_1 import ARCHIVE, PORT, Folder, answers, customers, free_port

DATABASES = (
    "profiles.db",
    "data-keys.db",
    "dead-letters.db",
    "dead-letters.keys.db",
    "jobs.db",
    "households.db",
    "metadata.db",
)


class InProcess(Folder):
    """The same folder; commands run in this process."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["-c", str(self.place / "idgraph.toml"), *words])

    def run(self, *words: str) -> str:
        done = self(*words)
        assert done.exit_code == 0, done.output
        return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("version-1")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(place, filter="data")
    config = place / "idgraph.toml"
    config.write_text(config.read_text().replace(PORT, str(free_port())))
    for each in (place / ".idgraph").rglob("*"):
        each.chmod(0o700 if each.is_dir() else 0o600)
    index = place / ".idgraph" / "index"
    if json.loads((index / "versions.json").read_bytes())["layout"] != LAYOUT:
        _make_index_again(InProcess(place), index)
    return place


def _make_index_again(folder: InProcess, index: Path) -> None:
    """By the commands that the refusal names. Only the index is not migrated."""
    refused = folder("search", "invoice")
    assert refused.exit_code == 1
    assert "remove the folder, then run `idgraph reindex`" in refused.stderr
    shutil.rmtree(index)
    with serving_here(load(folder.place / "idgraph.toml")) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDGRAPH_METADATA__URL", url)
        folder.run("reindex")


@pytest.fixture
def place(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of version 1 that the test may change."""
    shutil.copytree(unpacked, tmp_path / "it")
    monkeypatch.chdir(tmp_path / "it")
    return tmp_path / "it"


def test_all_that_was_stored_is_answered(place: Path) -> None:
    expected = json.loads((place / "expected.json").read_text())
    assert answers(InProcess(place)) == expected


def test_the_service_starts_over_its_database_and_keeps_all_of_it(place: Path) -> None:
    folder = InProcess(place)
    token = folder.run("tokens", "add", "reader", "--role", "admin", "--clearance", "100").strip()
    with (
        serving_here(load(place / "idgraph.toml")) as url,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as admin,
    ):
        assert admin.get("/health/ready").is_success
        assert {each["name"] for each in admin.get("/v1/specs").json()["items"]} == {
            "crm-customers",
            "helpdesk-tickets",
        }
        assert admin.get("/v1/attributes/identity.email").json()["encryption"] == "searchable"
        assert admin.get("/v1/views/support").json()["attributes"]["plan"] == "account.plan"
        assert admin.get("/v1/segments/paying").json()["q"] == "account.plan=pro"
        changed = admin.put(
            "/v1/segments/paying",
            params={"reason": "more"},
            json={"name": "paying", "q": "account.plan=team"},
        )
        assert changed.is_success
    assert folder("audit", "verify").exit_code == 0


def raise_database(name: str) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        with closing(sqlite3.connect(directory / name)) as connection, connection:
            if name == "metadata.db":
                connection.execute("UPDATE alembic_version SET version_num = '9999'")
            else:
                connection.execute("PRAGMA user_version = 9999")

    return change


def raise_index(directory: Path) -> None:
    file = directory / "index" / "versions.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"layout": 9999}))


FROM_THE_FUTURE = {name: raise_database(name) for name in DATABASES} | {"index": raise_index}
COMMANDS = {
    "metadata.db": ("tokens", "list"),
    "households.db": ("erase", "customer:2", "--yes"),
    "jobs.db": ("jobs", "list"),
    "dead-letters.db": ("dead-letters", "list"),
    "dead-letters.keys.db": ("dead-letters", "drop", "--all"),
    "index": ("search", "invoice"),
}


@pytest.mark.parametrize("what", FROM_THE_FUTURE)
def test_a_file_of_a_newer_idgraph_is_refused_in_one_line(place: Path, what: str) -> None:
    FROM_THE_FUTURE[what](place / ".idgraph")
    done = InProcess(place)(*COMMANDS.get(what, ("lookup", "customer:3", "--reveal")))
    assert done.exit_code in (1, 2)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    for part in (what, "9999", "backup"):
        assert part in errors[0]


@pytest.mark.spark
def test_a_flow_goes_on_over_it(place: Path) -> None:
    folder = Folder(place, free_port())
    # They end within a year.
    folder.run("tokens", "revoke", "flow")
    (place / ".idgraph" / "flow.token").unlink()
    file = place / ".idgraph" / "flows" / "main" / "batch.json"
    last = int(json.loads(file.read_bytes())["batch"].rpartition("/")[2])
    with folder.serving():
        folder.publish(
            "crm", [customers()[2] | {"key": "crm-3b", "at": "2026-11-25T08:00:00Z", "plan": "team"}]
        )
        batches = folder.json("run", "--until-done", "--json")
    assert [each["batch"] for each in batches] == [last + 1]
    expected = json.loads((place / "expected.json").read_text())
    found = answers(folder)
    assert found["lookup"][0]["attributes"]["account"] == {"plan": "team"}
    for name in ("by email", "apart", "dead letters", "jobs", "email"):
        assert found[name] == expected[name]
