"""The command line as a whole: help, exit codes, keys, publishing, services."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import click
import httpx
import pytest
import typer.main
from typer.testing import CliRunner

from idgraph import native
from idgraph.app.cli import app
from idgraph.app.package import install_command
from tests.app.conftest import CommandLine
from tests.lanes import long
from tests.retail import lines

ROOT = Path(__file__).parents[2]


def names(command: object, before: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each command with its help."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(before), getattr(command, "help", None) or ""
    else:
        for name, each in inner.items():
            yield from names(each, (*before, name))


COMMANDS = dict(names(typer.main.get_command(app)))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_a_command_does(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    first = " ".join(COMMANDS[command].split()[:5]).replace("\\[", "[")
    assert first
    assert first in click.unstyle(result.output)


def test_help_at_the_top() -> None:
    result = CliRunner().invoke(app, ["-h"])
    assert result.exit_code == 0
    for name in {command.split()[0] for command in COMMANDS}:
        assert name in result.output
    assert "Exit codes" in result.output


def test_help_for_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "idgraph.app.cli", "--help"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"error: standard output: No space left on device\n"


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == (
        f"idgraph {version('idgraph')} (native code: {native.state})\n"
    )


@pytest.mark.parametrize(
    "extra", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
def test_the_command_that_installs_an_extra_asks_no_index_for_idgraph(extra: str) -> None:
    python, *words = shlex.split(install_command(extra))
    assert (python, words[:3]) == (sys.executable, ["-m", "pip", "install"])
    assert words[3:]
    assert not [word for word in words[3:] if word.startswith("idgraph")]


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from idgraph.app.cli import app; heavy = {'pyspark', 'pyarrow', 'pandas', 'fastapi', 'sqlalchemy', 'granian', "
        "'httpx', 'cryptography', 'pydantic'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        # It shows ids of events, and what a spec puts beside an id decides whether policy hides it.
        (["lookup", "user_id:4493"], "'ingestion', 'transforms.spec.compiler'"),
        (["search", "guitar"], "'ingestion', 'transforms.spec'"),
        (["export"], "'ingestion.stages.map'"),
        (["dead-letters", "list"], "'ingestion.stages.map'"),
    ],
)
def test_reading_waits_for_nothing_that_only_a_flow_needs(
    words: list[str], unneeded: str, filled: CommandLine
) -> None:
    program = (
        "import sys; from idgraph.app.cli import app; app(standalone_mode=False); flow = {'pyspark', 'pyarrow', 'numpy', "
        "'pandas', 'fastapi', 'anyio', 'sqlalchemy', "
        f"{unneeded}}}; print(sorted(flow & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, "-c", f"{filled.folder}/idgraph.toml", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [[], ["nothing"], ["lookup"], ["search", "--limit", "0"], ["keys"]])
def test_a_wrong_command_line_exits_with_2(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


def test_a_wrong_configuration_exits_with_2(idgraph: CommandLine) -> None:
    (idgraph.folder / "idgraph.toml").write_text("[flow]\npartition = 2\n")
    result = idgraph("keys", "init")
    assert result.exit_code == 2
    assert "line 2: flow.partition: unknown key; did you mean 'partitions'?" in result.stderr
    assert not (idgraph.folder / ".idgraph").exists()


def test_a_configuration_that_is_not_there_exits_with_2() -> None:
    result = CliRunner().invoke(app, ["-c", "/none/idgraph.toml", "keys", "list"])
    assert result.exit_code == 2
    assert "/none/idgraph.toml" in result.stderr


# Keys


def test_keys_are_made_listed_and_added(idgraph: CommandLine) -> None:
    made = idgraph("keys", "init")
    assert made.exit_code == 0
    assert "keep a copy" in made.stdout
    file = idgraph.settings().keyring_file()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert idgraph("keys", "add").stdout == "version 2 is current\n"
    assert [key["version"] for key in idgraph.json("keys", "list", "--json")] == [1, 2]
    listed = idgraph("keys", "list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["version", "1", "2"]
    secrets = [key for key in json.dumps(json.loads(file.read_text())).split('"') if len(key) > 60]
    assert secrets
    assert not any(secret in "".join(listed) for secret in secrets)


def test_a_keyring_is_never_replaced(with_keys: CommandLine) -> None:
    before = with_keys.settings().keyring_file().read_bytes()
    result = with_keys("keys", "init")
    assert result.exit_code == 1
    assert "never replaced" in result.stderr
    assert with_keys.settings().keyring_file().read_bytes() == before


def test_a_keyring_in_a_folder_that_is_not_there(
    idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_KEYRING", "none/keyring.json")
    result = idgraph("keys", "init")
    assert result.exit_code in {1, 2}
    assert "No such file or directory" in result.stderr


@pytest.mark.parametrize("command", ["add", "list", "rotate", "retire 1"])
def test_keys_without_a_keyring(command: str, idgraph: CommandLine) -> None:
    result = idgraph("keys", *command.split())
    assert result.exit_code == 1
    assert "there is no keyring at" in result.stderr


# Publishing


def published(idgraph: CommandLine, source: str = "segment") -> list[bytes]:
    return [file.read_bytes() for file in sorted((idgraph.folder / "inbox" / source).iterdir())]


def test_publish_adds_one_whole_file_of_its_owner(idgraph: CommandLine) -> None:
    data = idgraph.folder / "data.jsonl.gz"
    data.write_bytes(gzip.compress(b"\n".join(lines("segment", 3))))
    result = idgraph("publish", "segment", data)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "published 3 events to segment" in result.stderr
    assert published(idgraph) == [b"\n".join(lines("segment", 3)) + b"\n"]
    (file,) = (idgraph.folder / "inbox" / "segment").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_publish_reads_standard_input_and_judges_nothing(idgraph: CommandLine) -> None:
    assert idgraph("publish", "orders", given=b'{"a":1}\n\nnot json\n').exit_code == 0
    assert published(idgraph, "orders") == [b'{"a":1}\nnot json\n']


def test_publish_of_nothing_makes_no_file(idgraph: CommandLine) -> None:
    result = idgraph("publish", "orders", given=b"")
    assert result.exit_code == 0
    assert "published 0" in result.stderr
    assert not (idgraph.folder / "inbox").exists()


def test_publish_of_a_truncated_file_reports_it_and_keeps_what_was_whole(idgraph: CommandLine) -> None:
    data = idgraph.folder / "data.jsonl.gz"
    whole = [line.rstrip(b"\n") + b"\n" for line in lines("segment", 3)]
    data.write_bytes(gzip.compress(b"".join(whole))[:-8])
    result = idgraph("publish", "segment", data)
    assert result.exit_code == 2
    assert published(idgraph, "segment") == [b"".join(whole)]
    assert "data.jsonl.gz" in result.stderr
    assert "the lines before it were published" in result.stderr
    there = sum(len(file.read_bytes().splitlines()) for file in (idgraph.folder / "inbox").rglob("*.jsonl"))
    assert f"published {there} event" in result.stderr


def test_publish_reads_what_map_reads(idgraph: CommandLine) -> None:
    packed = gzip.compress(b'{"a":1}\n{"a":2}\n')
    (idgraph.folder / "plainly").write_bytes(packed)
    for words, given in ((["plainly"], b""), (["-"], packed), ([], packed)):
        result = idgraph("publish", "orders", *words, given=given)
        assert "published 2 events" in result.stderr
    assert published(idgraph, "orders") == [b'{"a":1}\n{"a":2}\n'] * 3


def test_publish_to_an_unknown_source_or_from_no_file(idgraph: CommandLine) -> None:
    result = idgraph("publish", "segmnt", given=b"{}")
    assert result.exit_code == 2
    assert "configured: segment, amplitude, orders" in result.stderr


@pytest.mark.parametrize(
    ("name", "why"), [("none.jsonl", "No such file or directory"), ("inbox", "Is a directory")]
)
def test_of_files_that_are_not_all_there_nothing_is_published(
    idgraph: CommandLine, name: str, why: str
) -> None:
    (idgraph.folder / "inbox").mkdir()
    (idgraph.folder / "data.jsonl").write_bytes(b"{}\n")
    result = idgraph("publish", "segment", "data.jsonl", name)
    assert (result.exit_code, result.stderr) == (2, f"error: {name}: {why}\n")
    assert list((idgraph.folder / "inbox").iterdir()) == []


def test_publish_reads_a_pipe(idgraph: CommandLine) -> None:
    os.mkfifo(idgraph.folder / "pipe")
    writer = threading.Thread(target=(idgraph.folder / "pipe").write_bytes, args=(b'{"a":1}\n',))
    writer.start()
    try:
        assert idgraph("publish", "orders", "pipe").exit_code == 0
    finally:
        writer.join()
    assert published(idgraph, "orders") == [b'{"a":1}\n']


def test_publish_to_a_glob_is_refused(idgraph: CommandLine) -> None:
    (idgraph.folder / "idgraph.toml").write_text('[[sources]]\nname = "a"\npath = "in/*.jsonl"\n')
    result = idgraph("publish", "a", given=b"{}\n")
    assert result.exit_code == 2
    assert "publish needs a directory" in result.stderr


def test_publish_brings_the_files_name_to_disk_too(
    idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, list[str]]] = []
    inbox = idgraph.folder / "inbox" / "orders"
    plain = os.fsync

    def noted(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append((is_folder, [file.suffix for file in inbox.iterdir()]))
        plain(descriptor)

    monkeypatch.setattr("os.fsync", noted)
    assert idgraph("publish", "orders", given=b"{}\n").exit_code == 0
    assert synced == [(False, [".part"]), (True, [".jsonl"])]


# Output


@pytest.mark.parametrize("words", [["export"], ["search", "--json", "--limit", "1000"], ["keys", "list"]])
def test_a_reader_that_goes_away_is_no_error_to_talk_of(words: list[str], filled: CommandLine) -> None:
    command = [sys.executable, "-m", "idgraph.app.cli", "-c", f"{filled.folder}/idgraph.toml", *words]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 141, done.stderr
    assert b"error" not in done.stderr.lower().replace(b"(connecterror)", b"")
    assert {each["state"] for each in filled.json("jobs", "list", "--json")} <= {"cancelled"}


def test_a_flow_ends_well_when_nobody_reads_its_reports_any_more(idgraph: CommandLine) -> None:
    program = """
import sys
import tomllib
from idgraph.app import cli, flow_runner
from ingestion.stages.outcomes import BatchReport
from ingestion.stages.outcomes import StageReport

def run_flow(settings, stop, intake, on_batch, on_start):
    for number in range(3):
        assert stop.is_set() == (number > 0)
        on_batch(BatchReport(number, 1.0, 1, 1, StageReport(events=1)))
    sys.stderr.write("no micro-batch failed")

flow_runner.run_flow = run_flow
cli.main()
"""
    command = [sys.executable, "-c", program, "-c", f"{idgraph.folder}/idgraph.toml", "run", "--until-done"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"no micro-batch failed")


# Running, as far as it goes without Spark


def test_run_without_sources_keyring_or_token_reports_the_remedy(idgraph: CommandLine) -> None:
    result = idgraph("run", "--until-done")
    assert result.exit_code == 2
    assert "idgraph keys init" in result.stderr
    assert idgraph("keys", "init").exit_code == 0
    result = idgraph("run", "--until-done")
    assert result.exit_code == 2
    assert "idgraph serve metadata" in result.stderr
    (idgraph.folder / "idgraph.toml").write_text("")
    result = idgraph("run", "--until-done")
    assert result.exit_code == 2
    assert "no sources are configured" in result.stderr


def test_run_says_which_folder_of_a_source_it_made(
    with_keys: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    (with_keys.folder / "inbox" / "orders").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        with_keys("run", "--until-done")
        with_keys("run", "--until-done")
    made = [message for message in caplog.messages if "nothing there yet" in message]
    inbox = with_keys.folder / "inbox"
    assert made == [
        f"source {name}: created {inbox / name}, nothing there yet" for name in ("segment", "amplitude")
    ]


def test_a_source_that_holds_what_the_flow_writes_is_refused(
    with_keys: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read its keyring and its own checkpoint, without end."""
    config = with_keys.folder / "idgraph.toml"
    (with_keys.folder / "link").symlink_to(".")
    for directory, path in (("state", "."), ("x/../state", "."), ("state", "link"), ("link/state", ".")):
        config.write_text(f'directory = "{directory}"\n[[sources]]\nname = "s"\npath = "{path}"\n')
        with_keys("keys", "init")
        result = with_keys("run", "--until-done")
        assert (result.exit_code, "idgraph's own files are no events" in result.stderr) == (2, True), (
            result.stderr
        )
    keyring = 'directory = ".idgraph"\nkeyring = "in/keyring.json"\n[[sources]]\nname = "s"\npath = "in"\n'
    config.write_text(keyring)
    (with_keys.folder / "in").mkdir()
    assert with_keys("keys", "init").exit_code == 0
    assert "own files are no events" in with_keys("run", "--until-done").stderr
    # What is hidden Spark leaves out.
    config.write_text('directory = ".idgraph"\n[[sources]]\nname = "s"\npath = "."\n')
    assert "own files are no events" not in with_keys("run", "--until-done").stderr


def test_a_source_whose_folder_cannot_be_made(with_keys: CommandLine) -> None:
    (with_keys.folder / "inbox").write_text("a file")
    result = with_keys("run", "--until-done")
    assert result.exit_code == 2
    assert "source segment" in result.stderr
    assert "Not a directory" in result.stderr


def test_run_without_a_service_or_a_snapshot(with_keys: CommandLine) -> None:
    with_keys.settings().flow_token_file().write_text("a-token-for-the-tests")
    result = with_keys("run", "--until-done")
    assert result.exit_code == 5
    assert "no earlier snapshot" in result.stderr


def test_run_with_a_wrong_token(served: CommandLine) -> None:
    served.settings().flow_token_file().write_text("a-token-nobody-ever-made")
    result = served("run", "--until-done")
    assert result.exit_code == 5
    assert "HTTP 401" in result.stderr
    assert "a-token-nobody-ever-made" not in result.stderr


def test_run_without_java(with_keys: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = with_keys("run")
    assert result.exit_code == 2
    assert "JAVA_HOME" in result.stderr
    assert "install" in result.stderr


# Serving


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    with process:
        try:
            yield
        finally:
            process.kill()


def test_an_address_in_use_is_reported(with_keys: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = with_keys("serve", "metadata", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "cannot listen on 127.0.0.1" in result.stderr
    assert "Address already in use" in result.stderr


@pytest.mark.parametrize("number", [*long(signal.SIGINT), signal.SIGTERM])
def test_a_signal_ends_the_metadata_service_cleanly(number: signal.Signals, idgraph: CommandLine) -> None:
    command = [sys.executable, "-m", "idgraph.app.cli", "-c", f"{idgraph.folder}/idgraph.toml"]
    server = subprocess.Popen(
        [*command, "serve", "metadata", "--port", "0"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    with killed_at_the_end(server):
        assert server.stderr is not None
        first = server.stderr.readline()
        assert "metadata service on http://127.0.0.1:" in first
        url = first.split(" on ", 1)[1].split(",")[0]
        deadline = time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"{url}/healthz", timeout=5).status_code == 200
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        token = idgraph.settings().token_file()
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert token.read_text() not in first
        server.send_signal(number)
        _, rest = server.communicate(timeout=60)
    assert "Traceback" not in rest
    assert server.returncode in ({0} if number == signal.SIGTERM else {0, 130, -number})
    for file in idgraph.settings().directory.glob("metadata.db*"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_commands_that_others_rely_on_stay() -> None:
    words = "map check run backfill publish serve lookup search export dead-letters keys demo bench"
    assert {*words.split(), "links", "explain", "rules", "resolve", "jobs"} <= {
        each.split()[0] for each in COMMANDS
    }


@pytest.mark.long
def test_bench_passes_its_words_on() -> None:
    def bench(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "idgraph.app.cli", "bench", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    known = bench("--", "--help")
    assert (known.returncode, "--shops" in known.stdout) == (0, True)
    unknown = bench("nonsense", "--shops", "1")
    assert (unknown.returncode, "there are throughput, latency" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("closed", [*long("<&-", ">&-", "2>&-"), "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "command", ["map {spec}", *long("--version", "search x=1", "specs validate-no-such")]
)
def test_standard_streams_that_are_closed_are_as_dev_null(tmp_path: Path, closed: str, command: str) -> None:
    """Found by use: `AttributeError: 'NoneType' object has no attribute 'flush'`, and messages among the output."""
    spec = tmp_path / "spec.json"
    spec.write_text('{"operation": "shift", "spec": {"a": "b"}}')
    line = f"echo nonsense | {sys.executable} -m idgraph.app.cli {command.format(spec=spec)}"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    given, plain = (
        subprocess.run(
            ["sh", "-c", f"{line} {end}"], cwd=tmp_path, capture_output=True, check=False, env=environment
        )
        for end in (closed, "")
    )
    assert b"Traceback" not in given.stdout + given.stderr
    if closed == "<&-" and command.startswith("map"):
        assert (given.returncode, given.stdout) == (0, b"")
    else:
        assert given.returncode == (0 if "<" in closed and "map" in command else plain.returncode)
        assert given.stdout in (b"", plain.stdout)
    assert given.stderr in (b"", plain.stderr)
