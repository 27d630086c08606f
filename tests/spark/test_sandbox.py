"""A flow of a sandbox, in processes as people start them: the same sources, other profiles, then its spec in production."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from idgraph.app.metadata_server import serving_here
from idgraph.app.settings.document import load
from idgraph.app.settings.sandbox import in_sandbox
from tests.retail import EXAMPLE, lines

pytestmark = pytest.mark.long


def test_a_spec_is_run_in_a_sandbox_before_production(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text((EXAMPLE / "idgraph.toml").read_text())
    inbox = load(file).file_source("orders").path
    inbox.mkdir(parents=True)
    (inbox / "orders.jsonl").write_bytes(b"\n".join(lines("orders", 40)) + b"\n")
    settings = load(file)

    def idgraph(url: str, *words: str) -> str:
        environment = {each: value for each, value in os.environ.items() if not each.startswith("IDGRAPH_")}
        command = [sys.executable, "-m", "idgraph.app.cli", "-c", str(file), *words]
        done = subprocess.run(
            command,
            capture_output=True,
            env=environment | {"IDGRAPH_METADATA__URL": url},
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.decode()

    def exported(url: str, *words: str) -> list[str]:
        return idgraph(url, *words, "export").splitlines()

    with ExitStack() as stack:
        production = stack.enter_context(serving_here(settings))
        idgraph(production, "keys", "init")
        idgraph(production, "specs", "apply", str(EXAMPLE / "specs" / "orders.json"))
        idgraph(production, "run", "--until-done")
        before = exported(production)
        idgraph(production, "sandboxes", "create", "try")
        served = stack.enter_context(serving_here(in_sandbox(settings, "try")))
        # The URL of production whose sandbox is at this one.
        sandbox = f"http://127.0.0.1:{(urlsplit(served).port or 0) - 100}"
        spec = json.loads((EXAMPLE / "specs" / "orders.json").read_text())
        spec |= {"description": "tried", "specification_type": "chain"}
        spec["operations"] = [
            *(spec["operations"] if isinstance(spec["operations"], list) else [spec["operations"]]),
            {"operation": "default", "spec": {"tried": {"in": "a sandbox"}}},
        ]
        edited = tmp_path / "edited.json"
        edited.write_text(json.dumps(spec))
        idgraph(sandbox, "--sandbox", "try", "keys", "init")
        idgraph(sandbox, "--sandbox", "try", "specs", "apply", str(edited))
        idgraph(sandbox, "--sandbox", "try", "run", "--until-done")
        tried = exported(sandbox, "--sandbox", "try")
        assert len(tried) == len(before) > 0
        assert all("a sandbox" in each for each in tried)
        assert exported(production) == before
        (found,) = json.loads(idgraph(production, "sandboxes", "compare", "try", "--json"))["items"]
        assert (found["kind"], found["state"]) == ("spec", "changed")
        idgraph(production, "sandboxes", "promote", "try", "--reason", "tried")
        (inbox / "more.jsonl").write_bytes(b"\n".join(lines("orders", 80)) + b"\n")
        idgraph(production, "run", "--until-done")
        assert any("a sandbox" in each for each in exported(production))
        idgraph(production, "sandboxes", "delete", "try", "--yes")
        assert not (settings.directory / "sandboxes" / "try").exists()
