"""`idgraph doctor`: one finding for each thing that is wrong, with the command that mends it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import HTTPServer, SimpleHTTPRequestHandler
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from idgraph.app import checks, wiring
from idgraph.app.cli import app
from idgraph.app.java import require_java
from idgraph.app.metadata_server import serving_here
from idgraph.files import write_atomically
from idgraph.model import formats
from idgraph.model.backoff import Backoff
from idgraph.model.flows import FlowPause, Flows
from metadata_service.storage.database import NEWEST
from sinks.document_folder import DocumentFolder
from sinks.elasticsearch.schema import LAYOUT as ELASTICSEARCH_LAYOUT
from sinks.tantivy.folder import LAYOUT
from tests.app.conftest import CommandLine
from tests.support.processes import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def well(filled: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """Profiles, and a metadata service."""
    monkeypatch.setattr(
        checks, "CHECKS", {k: each for k, each in checks.CHECKS.items() if k != "native code"}
    )
    monkeypatch.setattr(checks, "require_java", lambda: "java")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    for name in filled.settings().sources_by_name():
        filled.settings().file_source(name).path.mkdir(parents=True)
    for each in (filled.folder / ".idgraph").iterdir():
        each.chmod(0o700 if each.is_dir() else 0o600)
    with serving_here(filled.settings()) as url:
        monkeypatch.setenv("IDGRAPH_METADATA__URL", url)
        yield filled


class Seen(NamedTuple):
    """What the doctor said of one check."""

    kind: str
    place: str
    said: str
    command: str
    is_fault: bool


def seen(idgraph: CommandLine, *words: str) -> dict[str, list[Seen]]:
    """By check, without those that are well. The exit code says whether there are faults."""
    result = idgraph("doctor", "--json", *words)
    lines: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    found: dict[str, list[Seen]] = {}
    for each in lines:
        if each["kind"] != "ok":
            one = Seen(each["kind"], each["place"], each["text"], each["command"], each["is_fault"])
            found.setdefault(each["check"], []).append(one)
    faults = any(each.is_fault for some in found.values() for each in some)
    assert result.exit_code == int(faults), result.output
    return found


def only(found: dict[str, list[Seen]], check: str) -> Seen:
    assert list(found) == [check]
    (one,) = found[check]
    return one


def directory(idgraph: CommandLine) -> Path:
    return idgraph.settings().directory


def test_nothing_is_found_where_all_is_well(well: CommandLine) -> None:
    assert seen(well) == {}
    shown = well("doctor").stdout.splitlines()
    assert shown[0] == "ok configuration"
    assert all(each.startswith("ok ") for each in shown)


def test_a_fault_shows_its_place_and_its_command(well: CommandLine) -> None:
    well.settings().keyring_file().chmod(0o644)
    result = well("doctor")
    assert result.exit_code == 1
    assert "1 fault" in result.stderr
    file = well.settings().keyring_file()
    assert f"! directory: open to others: {file}\n" in result.stdout
    assert f"    mend: chmod go= {file}\n" in result.stdout


def test_a_configuration_that_cannot_be_used_is_a_finding(idgraph: CommandLine) -> None:
    (idgraph.folder / "idgraph.toml").write_text("directry = 'x'")
    assert "directory" in only(seen(idgraph), "configuration").said


def test_another_folder_than_that_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert result.stdout.startswith("! configuration: missing: idgraph.toml\n")
    assert "mend: cd to its folder" in result.stdout


def test_before_the_first_start(idgraph: CommandLine) -> None:
    found = seen(idgraph)
    assert found["directory"][0] == found["directory"][0]._replace(kind="missing", is_fault=False)
    assert "idgraph keys init" in found["keyring"][0].command
    assert not directory(idgraph).exists()


def test_a_lost_keyring(well: CommandLine) -> None:
    well.settings().keyring_file().unlink()
    one = only(seen(well), "keyring")
    assert one.kind == "missing"
    assert "restore the keyring from its copy" in one.said
    assert one.command == f"cp COPY {well.settings().keyring_file()}"


def test_a_damaged_keyring(well: CommandLine) -> None:
    well.settings().keyring_file().write_text("{}")
    one = only(seen(well), "keyring")
    assert (one.kind, one.command) == ("damaged", f"cp COPY {well.settings().keyring_file()}")


def test_a_keyring_of_another_installation(
    well: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    foreign = CommandLine(tmp_path_factory.mktemp("foreign"))
    (foreign.folder / "idgraph.toml").write_text("")
    assert foreign("keys", "init").exit_code == 0
    shutil.copy(foreign.settings().keyring_file(), well.settings().keyring_file())
    assert only(seen(well), "stores").kind == "foreign"


def test_lost_profiles(well: CommandLine) -> None:
    for each in directory(well).glob("profiles.db*"):
        each.unlink()
    one = only(seen(well), "stores")
    assert (one.kind, one.place) == ("missing", str(directory(well) / "profiles.db"))
    assert not (directory(well) / "profiles.db").exists()


def test_a_lost_index(well: CommandLine) -> None:
    shutil.rmtree(directory(well) / "index")
    assert only(seen(well), "index").command == "idgraph reindex"


def test_an_index_that_is_empty(well: CommandLine) -> None:
    shutil.rmtree(directory(well) / "index")
    with wiring.opened(well.settings()):
        pass  # As a service does.
    one = only(seen(well), "index")
    assert one.kind == "missing"
    assert "idgraph reindex" in one.command


def numbered(file: Path, number: int) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")


def test_a_file_of_a_newer_idgraph(well: CommandLine) -> None:
    numbered(directory(well) / "profiles.db", 7)
    one = only(seen(well), "stores")
    assert (one.kind, one.place) == ("newer", str(directory(well) / "profiles.db"))
    assert f"it has format 7, and idgraph {version('idgraph')} reads 1 to 2" in one.said


@pytest.mark.parametrize("content", [b"no database", None])
def test_a_file_that_is_no_database_of_ours(well: CommandLine, content: bytes | None) -> None:
    file = directory(well) / "jobs.db"
    file.unlink(missing_ok=True)
    if content is None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE theirs (a)")
    else:
        file.write_bytes(content * 100)
    file.chmod(0o600)
    one = only(seen(well), "stores")
    assert (one.kind, one.place) == ("damaged", str(file))


def test_an_index_of_another_layout(well: CommandLine) -> None:
    file = directory(well) / "index" / "versions.json"
    file.write_text(file.read_text().replace(f'"layout": {LAYOUT}', f'"layout": {LAYOUT + 1}'))
    one = only(seen(well), "stores")
    assert one.kind == "newer"
    assert one.command == f"rm -r {file.parent} && idgraph reindex"


def test_a_metadata_service_that_is_away(well: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDGRAPH_METADATA__URL", f"http://127.0.0.1:{free_port()}")
    assert only(seen(well), "metadata service").kind == "unreachable"


def test_another_program_on_the_port_of_the_metadata_service(
    well: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        monkeypatch.setenv("IDGRAPH_METADATA__URL", f"http://127.0.0.1:{other.server_port}")
        one = only(seen(well), "metadata service")
        other.shutdown()
    assert (one.kind, one.said) == (
        "foreign",
        "another program answers there, and no metadata service of idgraph",
    )


def test_a_metadata_service_of_another_key_or_another_token(
    well: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_METADATA__PUBLIC_KEY", "AAAAC3NzaC1lZDI1NTE5AAAAIGnZ4Zp1YbQw0000000=")
    one = only(seen(well), "metadata service")
    assert one.kind == "foreign"
    assert "metadata.pub" in one.command
    monkeypatch.setenv("IDGRAPH_METADATA__TOKEN", "other")
    one = only(seen(well), "metadata service")
    assert one.kind == "foreign"
    assert "idgraph tokens add" in one.command


def test_a_full_disk_and_one_too_small_for_an_erasure(
    well: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(well.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    one = only(seen(well), "disk")
    assert (one.kind, one.is_fault) == ("full", True)
    monkeypatch.setattr(checks, "LEAST_FREE_BYTES", 0)
    size = (directory(well) / "profiles.db").stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size))
    one = only(seen(well), "disk")
    assert (one.kind, one.is_fault) == ("full", False)


def test_no_java(well: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "require_java", require_java)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    one = only(seen(well), "Java")
    assert (one.kind, one.place) == ("missing", "/nowhere")
    assert "OpenJDK" in one.command or "install" in one.command


def test_a_clock_that_was_set_back(well: CommandLine) -> None:
    file = directory(well) / "profiles.db"
    later = time.time() + 7200
    os.utime(file, (later, later))
    assert re.search(r"7,[12]\d\d s behind", only(seen(well), "clock").said)


def test_flows_that_are_silent_or_paused(well: CommandLine) -> None:
    folders = Flows(DocumentFolder(directory(well)))
    assert folders.pause("shop", FlowPause(who="ann", why="the store moves", at_ms=0))
    write_atomically(directory(well) / "flows" / "shop" / "report.json", SILENT.encode())
    found = seen(well)
    silent, paused = found["flows"]
    assert "was killed or hangs" in silent.said
    assert (paused.said, paused.command, paused.is_fault) == (
        "the flow shop was paused by ann: the store moves",
        "idgraph flows resume shop",
        False,
    )


SILENT = json.dumps(
    {
        "name": "shop",
        "state": "running",
        "started_ms": 0,
        "written_ms": 0,
        "window_seconds": 1.0,
        "events_per_second": 0.0,
        "commit_seconds_p99": None,
        "projection_lag_seconds": None,
        "set_aside_per_second": 0.0,
        "set_aside_share": 0.0,
        "set_aside_limit": 0.2,
        "set_aside_reasons": {},
        "snapshot_version": 1,
        "snapshot_age_seconds": None,
        "last_batch": None,
        "stages": [],
        "sources": [],
    }
)


def test_servers_that_are_away(with_keys: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from sinks.elasticsearch import client
    from sinks.kafka import topics

    monkeypatch.setattr(topics, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(client, "AWAY", Backoff(retries=0))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    away = f"127.0.0.1:{free_port()}"
    (with_keys.folder / "idgraph.toml").write_text(f"""
[store]
kind = "dynamodb"
region = "eu-central-1"
endpoint = "http://{away}"
[index]
kind = "elasticsearch"
url = "http://{away}"
[kafka]
bootstrap_servers = "{away}"
[[sources]]
kind = "kafka"
name = "web"
topics = ["web"]
""")
    found = seen(with_keys)
    assert [each.kind for each in found["stores"]] == ["unreachable", "unreachable"]
    assert "DynamoDB" in found["stores"][1].place
    assert [(each.kind, each.place) for each in found["Kafka"]] == [("unreachable", away)]


def test_a_pulsar_that_is_away(with_keys: CommandLine) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    (with_keys.folder / "idgraph.toml").write_text(f"""
[pulsar]
admin_url = "{away}"
[[sources]]
kind = "pulsar"
name = "web"
topics = ["public/default/web"]
""")
    assert [(each.kind, each.place) for each in seen(with_keys)["Pulsar"]] == [("unreachable", away)]


def test_a_version_that_upgrades_and_one_that_refuses(
    well: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = formats.FormatRange(1, 2), formats.FormatRange(1, 3)
    today = formats.READ["0.1.0"]
    monkeypatch.setattr(
        formats,
        "READ",
        {"0.1.0": {**today, "profiles.db": one}, "0.3.0": {**today, "profiles.db": two, "index": one}},
    )
    monkeypatch.setattr(checks, "version", lambda _: "0.3.4")
    assert seen(well, "--for", "0.1.0") == {}
    assert seen(well, "--for", "0.2.9") == {}
    upgraded, rebuilt = seen(well, "--for", "v0.3.0")["formats for v0.3.0"]
    assert (upgraded.kind, upgraded.is_fault) == ("older", False)
    assert "upgrades to 3 when it opens it" in upgraded.said
    assert rebuilt.command.endswith("&& idgraph reindex")
    numbered(directory(well) / "profiles.db", 3)
    (refused,) = seen(well, "--for", "0.1.0")["formats for 0.1.0"]
    assert (refused.kind, refused.is_fault) == ("newer", True)


@pytest.mark.parametrize(
    ("asked", "said"), [("9.0.0", "ask that of 9.0.0"), ("0.0.1", "the first is"), ("x", "no version")]
)
def test_a_version_that_nobody_knows_is_refused(well: CommandLine, asked: str, said: str) -> None:
    result = well("doctor", "--for", asked)
    assert result.exit_code == 2
    assert said in result.output


def test_the_table_of_formats_is_that_of_the_code() -> None:
    modules = ("profiles", "data_keys", "dead_letters", "data_keys", "jobs", "households")
    names = (
        "profiles.db",
        "data-keys.db",
        "dead-letters.db",
        "dead-letters.keys.db",
        "jobs.db",
        "households.db",
    )
    written = {
        name: import_module(f"sinks.sqlite.{module}")._SCHEMA.version
        for name, module in zip(names, modules, strict=True)
    }
    written |= {"metadata.db": NEWEST, "index": LAYOUT, "elasticsearch": ELASTICSEARCH_LAYOUT}
    own = formats.formats_of(version("idgraph"), version("idgraph"))
    assert {name: found.newest for name, found in own.items()} == written


def test_the_page_has_the_table_of_formats() -> None:
    page = (Path(__file__).parents[2] / "docs/operate.md").read_text(encoding="utf-8")
    titles, _, *rows = [
        [cell.strip(" `/") for cell in line.strip("|").split("|")]
        for line in page[page.index("| idgraph | `metadata.db`") :].split("\n\n", 1)[0].splitlines()
    ]
    names = [{"Elasticsearch": "elasticsearch"}.get(each, each) for each in titles[1:]]

    def shown(found: formats.FormatRange) -> str:
        return str(found.newest) if found.oldest == found.newest else f"{found.oldest} to {found.newest}"

    assert rows == [[each, *(shown(reads[name]) for name in names)] for each, reads in formats.READ.items()]
    assert all(set(names) == set(reads) for reads in formats.READ.values())
