"""`idgraph serve profiles --processes N`: one port, one end, and no process that is missed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from idgraph.app.jobs.threads import MOST_RESULTS, RESULTS, JobThreads
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.web import server
from tests.app.conftest import CommandLine
from tests.app.processes import ROOT
from tests.profile_service.api.conftest import with_levels
from tests.support.patience import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the processes"),
]


class Running(NamedTuple):
    """The process that was started."""

    main: subprocess.Popen[str]
    url: str

    def processes(self) -> set[int]:
        """Those that serve."""
        listed = Path(f"/proc/{self.main.pid}/task/{self.main.pid}/children").read_text()
        return set(map(int, listed.split()))

    def is_ready(self) -> bool:
        """Whether the process that this call meets is."""
        return httpx.get(f"{self.url}/health/ready", timeout=60, trust_env=False).status_code == 200


@contextmanager
def running(idgraph: CommandLine, *words: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "idgraph", "-c", f"{idgraph.folder}/idgraph.toml"]
    started = subprocess.Popen(
        [*command, "serve", "profiles", "--port", "0", *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert started.stderr is not None
    with closing(started.stderr):
        try:
            first = started.stderr.readline()
            found = re.search(r"profile service on (http://127\.0\.0\.1:\d+),", first)
            assert found, first
            yield Running(started, found[1])
        finally:
            started.kill()
            started.wait()


def is_there(process: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_processes_share_a_port_and_an_end(served: CommandLine) -> None:
    with running(served, "--processes", "2") as service:
        eventually(lambda: len(service.processes()) == 2)
        eventually(service.is_ready)
        before = service.processes()
        # Each answers with what all have counted.
        for _ in range(20):
            assert service.is_ready()
        counted = (
            r'idgraph_profiles_request_seconds_count\{method="GET",route="/health/ready",status="200"\} (\d+)'
        )
        found = re.search(counted, httpx.get(f"{service.url}/metrics", trust_env=False).text)
        assert found
        assert int(found[1]) >= 20
        service.main.send_signal(signal.SIGTERM)
        _, said = service.main.communicate(timeout=60)
    assert service.main.returncode == 0
    assert said == ""
    assert not any(map(is_there, before))


def test_a_process_that_ends_soon_ends_all(served: CommandLine) -> None:
    with running(served, "--processes", "2") as service:
        eventually(lambda: len(service.processes()) == 2)
        eventually(service.is_ready)
        before = service.processes()
        os.kill(min(before), signal.SIGKILL)
        _, said = service.main.communicate(timeout=60)
    assert "ended with code -9 soon after its start" in said
    assert service.main.returncode == 1
    assert not any(map(is_there, before))


FAILING_TWICE = """
import os, signal, sys
file, descriptor = sys.argv[1:]
assert len(sys.stdin.buffer.read(64)) == 64
with open(file, "a") as starts:
    print(descriptor, file=starts)
if len(open(file).readlines()) < 3:
    sys.exit(7)
os.kill(os.getppid(), signal.SIGINT)
sys.stdin.buffer.read()
"""


def test_a_process_that_ends_later_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "START_SECONDS", 0)
    file, urls = tmp_path / "starts", list[str]()
    command = [sys.executable, "-c", FAILING_TWICE, str(file)]
    ending = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        server.serve_by_processes(command, 1, "a test", "127.0.0.1", 0, urls.append, server.LOCAL)
    signal.signal(signal.SIGTERM, ending)
    assert len(file.read_text().split()) == 3
    assert [each.getMessage() for each in caplog.records] == 2 * [
        "a process of a test ended with code 7; another one replaces it"
    ]
    assert len(urls) == 1


def test_no_process_outlives_the_one_that_was_started(served: CommandLine) -> None:
    with running(served, "--processes", "2") as service:
        eventually(lambda: len(service.processes()) == 2)
        eventually(service.is_ready)
        before = service.processes()
        service.main.kill()
        eventually(lambda: not any(map(is_there, before)))


def test_results_are_for_the_processes_of_one_start(filled: CommandLine) -> None:
    settings = filled.settings()
    pinned = PinnedSnapshot("1", with_levels({}))
    one, other, stranger = (
        JobThreads(settings, lambda: pinned, secret=key * 64) for key in (b"a", b"a", b"b")
    )
    one.keep_result("000001", {"found": "canary@example.com"}, is_durable=False)
    assert one.result("000001") == other.result("000001") == {"found": "canary@example.com"}
    assert stranger.result("000001") is None
    folder = settings.directory / RESULTS
    assert not [each for each in folder.iterdir() if b"canary" in each.read_bytes()]
    for number in range(2, MOST_RESULTS + 3):
        one.keep_result(f"{number:06}", {}, is_durable=False)
    assert other.result("000001") is None
    assert len([*folder.iterdir()]) == MOST_RESULTS
