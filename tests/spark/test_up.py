"""`idgraph up` with a flow: from a published event to a look-up over HTTP, and one end for all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.installation import RUN_SECONDS, descendants, until
from tests.support.processes import free_port

pytestmark = [pytest.mark.spark, pytest.mark.long]

SPEC = {
    "name": "crm-customers",
    "source": "crm",
    "status": "active",
    "operations": [
        {
            "operation": "jmespath",
            "spec": {"_event.id": "id", "_event.ordinal": "epoch_ms(at)", "identity.customer": "customer"},
        }
    ],
    "id": "_event.id",
    "ordinal": "_event.ordinal",
    "identifiers": [{"type": "customer", "path": "identity.customer", "primary": True}],
}


def test_an_event_becomes_a_profile_and_all_end_together(tmp_path: Path) -> None:
    metadata, profiles, metrics = free_port(), free_port(), free_port()
    (tmp_path / "idgraph.toml").write_text(f"""
[metadata]
url = "http://127.0.0.1:{metadata}"
[profiles]
port = {profiles}
[flow]
driver_memory = "512m"
[metrics]
port = {metrics}
[[sources]]
name = "crm"
path = "inbox/crm"
type = {{ const = "customer" }}
""")
    command = [sys.executable, "-m", "idgraph", "-c", str(tmp_path / "idgraph.toml")]

    def run(*words: str, given: str | None = None) -> str:
        done = subprocess.run(
            [*command, *words], input=given, capture_output=True, text=True, check=False, timeout=RUN_SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("keys", "init")
    log = tmp_path / "up.log"
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, "up"], stdout=stream, stderr=stream)
    try:

        def is_ready() -> bool:
            try:
                answer = httpx.get(f"http://127.0.0.1:{metrics}/health/ready", trust_env=False, timeout=60)
            except httpx.TransportError:
                return False
            return answer.status_code == 200

        until(lambda: is_ready() or process.poll() is not None, what="a flow that is ready")
        assert process.poll() is None, log.read_text()
        (tmp_path / "spec.json").write_text(json.dumps(SPEC))
        run("specs", "apply", str(tmp_path / "spec.json"), "--reason", "a test")
        event = {"id": "1", "at": "2026-03-01T09:00:00Z", "customer": "480"}
        run("publish", "crm", given=json.dumps(event))
        token = run("tokens", "add", "reader", "--role", "profiles", "--clearance", "100").strip()
        url, headers = (
            f"http://127.0.0.1:{profiles}/v1/profiles/customer:480",
            {"Authorization": f"Bearer {token}"},
        )
        until(
            lambda: httpx.get(url, headers=headers, trust_env=False, timeout=60).status_code == 200,
            what="a profile",
        )
        assert run("doctor", "--for", "0.1.0") == "ok formats for 0.1.0\n"
        below = descendants(process.pid)
        assert len(below) > 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    said = log.read_text().splitlines()
    assert any(each.startswith("flow-main | batch 0: 1 event, 1 profile written") for each in said)
    assert "flow-main | stopped; the next run continues from here" in said
