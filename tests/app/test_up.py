"""`idgraph up`: processes with one log and one end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.app.conftest import CommandLine
from tests.app.processes import ROOT
from tests.support.patience import eventually
from tests.support.processes import free_port

pytestmark = [pytest.mark.slow]

WAITING = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('ready', flush=True); time.sleep(60)"
SLOW_TO_END = WAITING.replace(
    "sys.exit(0)", "(time.sleep(0.5), print('the last word', flush=True), sys.exit(0))"
)


def supervised(parts: str, before: str = "") -> subprocess.Popen[str]:
    program = f"""
import sys
from idgraph.app.supervision import Part, supervise
{before}
def python(text): return (sys.executable, "-c", text)
sys.exit(supervise([{parts}]))
"""
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )


def lines_until(process: subprocess.Popen[str], *wanted: str) -> list[str]:
    """Its lines up to that by which all of these were said."""
    assert process.stderr is not None
    said = []
    missing = set(wanted)
    for line in process.stderr:
        said.append(line.rstrip("\n"))
        missing -= {each for each in missing if each in line}
        if not missing:
            return said
    raise AssertionError(f"{missing} are not in {said}")


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    said = process.communicate(timeout=60)[1]
    return process.returncode, said.splitlines()


def test_all_write_one_log_and_end_together_in_their_order() -> None:
    process = supervised(
        f"Part('first', python({WAITING!r}), is_last=True), Part('b', python({SLOW_TO_END!r}))"
    )
    lines_until(process, "first | ready", "b     | ready", "started first, b")
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 0
    assert said == ["stopping (again to interrupt what they finish first)", "b     | the last word"]


def test_one_that_ends_by_itself_ends_the_others_with_its_code() -> None:
    process = supervised(
        f"Part('one', python({WAITING!r})), Part('two', python('print(\"why\"); raise SystemExit(4)'))"
    )
    code, said = ended(process)
    assert code == 4
    assert "two | why" in said
    assert said[-1] == "two ended with code 4, so the others end too; the reason is in its last lines"


def test_one_that_was_killed_is_named() -> None:
    process = supervised("Part('one', python('import os; os.kill(os.getpid(), 9)'))")
    code, said = ended(process)
    assert (code, said[-1]) == (
        1,
        "one was killed by signal 9, so the others end too; the reason is in its last lines",
    )


def test_its_end_waits_for_nobody_who_still_holds_its_output() -> None:
    """Java writes its archive of classes after the first run of a flow."""
    text = "import subprocess, sys; print('left', subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']).pid, flush=True)"
    code, said = ended(supervised(f"Part('one', python({text!r}))"))
    left = int(next(each for each in said if "left" in each).split()[-1])
    os.kill(left, signal.SIGKILL)  # It is still there.
    assert code == 0


def test_a_second_signal_interrupts_what_is_finished_first() -> None:
    patient = (
        "import signal, time; signal.signal(15, lambda *_: print('patience', flush=True)); print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    process = supervised(f"Part('one', python({patient!r}))")
    lines_until(process, "ready", "started")
    process.send_signal(signal.SIGINT)
    lines_until(process, "patience")
    process.send_signal(signal.SIGINT)
    code, _ = ended(process)
    assert code == 130


def test_as_json_each_line_is_an_object_with_its_process() -> None:
    before = "import logging; from idgraph.app.observation.json_logs import JsonFormatter\n"
    before += "logging.basicConfig(); logging.getLogger().handlers[0].setFormatter(JsonFormatter())"
    text = "import sys; print('{\"message\": \"own\"}', file=sys.stderr); print('plain', file=sys.stderr)"
    _, said = ended(supervised(f"Part('one', python({text!r}))", before))
    found = [json.loads(line) for line in said]
    assert {"message": "own", "process": "one"} in found
    assert {"level": "INFO", "message": "plain", "process": "one"} in found


@contextmanager
def up(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "idgraph", "-c", str(folder / "idgraph.toml"), "up", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def without_sources(folder: Path) -> tuple[str, str]:
    """A configuration of the services alone; their URLs."""
    metadata, profiles = free_port(), free_port()
    text = f'[metadata]\nurl = "http://127.0.0.1:{metadata}"\n[profiles]\nport = {profiles}\n'
    (folder / "idgraph.toml").write_text(text, encoding="utf-8")
    return f"http://127.0.0.1:{metadata}", f"http://127.0.0.1:{profiles}"


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", trust_env=False, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_the_services_of_a_configuration_run_and_end(with_keys: CommandLine) -> None:
    urls = without_sources(with_keys.folder)
    with up(with_keys.folder) as process:
        said = lines_until(process, "profiles | profile service on")
        assert said[0] == "no sources are configured ([[sources]]), so there is no flow"
        assert f"metadata | metadata service on {urls[0]}, tokens in {with_keys.folder}/.idgraph" in said
        for url in urls:
            eventually(lambda url=url: is_ready(url))  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        code, _ = ended(process)
        assert code == 0
        assert not any(map(is_ready, urls))


def test_no_process_outlives_a_killed_start(with_keys: CommandLine) -> None:
    urls = without_sources(with_keys.folder)
    with up(with_keys.folder) as process:
        lines_until(process, "profiles | profile service on")
        eventually(lambda: all(map(is_ready, urls)))
        process.kill()
        eventually(lambda: not any(map(is_ready, urls)))


def test_a_port_that_is_taken_ends_all_with_its_reason(with_keys: CommandLine) -> None:
    without_sources(with_keys.folder)
    with up(with_keys.folder) as first:
        lines_until(first, "profiles | profile service on")
        with up(with_keys.folder) as second:
            code, said = ended(second)
    assert code == 2
    assert re.search(r"the metadata service cannot listen on 127.0.0.1:\d+: Address already", said[-1])
    assert not any("|" in each for each in said), "nothing was started"


def test_without_a_keyring_nothing_is_started(idgraph: CommandLine) -> None:
    result = idgraph("up")
    assert result.exit_code == 2
    assert "make one with `idgraph keys init`" in result.output
    assert not (idgraph.folder / ".idgraph" / "metadata.db").exists()


def test_flows_share_a_folder_and_no_name(with_keys: CommandLine) -> None:
    own = (with_keys.folder / "idgraph.toml").read_text()
    other = with_keys.folder / "other.toml"
    other.write_text(own)
    assert "two flows have the same name" in with_keys("up", other).output
    own = re.sub(r"(?m)^directory.*$", "", own).replace('"shop"', '"other"')
    other.write_text(f'directory = "elsewhere"\n{own}')
    assert "and that of the others" in with_keys("up", other).output


def test_units_run_the_same_processes(with_keys: CommandLine) -> None:
    folder = with_keys.folder / "units"
    folder.mkdir()
    other = with_keys.folder / "other.toml"
    other.write_text((with_keys.folder / "idgraph.toml").read_text().replace('"shop"', '"other"'))
    result = with_keys("up", other, "--systemd", folder)
    assert result.exit_code == 0, result.output
    names = [f"idgraph-{each}.service" for each in ("metadata", "profiles", "flow-shop", "flow-other")]
    assert {each.name for each in folder.iterdir()} == {"idgraph.target", *names}
    commands = [re.findall(r"ExecStart=(.*)", (folder / name).read_text())[0] for name in names]
    options = "--log-format text"
    file = with_keys.folder / "idgraph.toml"
    assert [each.removeprefix(f"{sys.executable} -m idgraph -c ") for each in commands] == [
        f"{file} {options} serve metadata",
        f"{file} {options} serve profiles",
        f"{file} {options} run",
        f"{other} {options} run",
    ]
    assert "After=network-online.target idgraph-metadata.service\n" in (folder / names[2]).read_text()
    assert with_keys("up", "--systemd", "-").output.count("[Service]") == 3
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze, which checks units, is not installed")
    done = subprocess.run(
        [verify, "verify", *map(str, folder.iterdir())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
