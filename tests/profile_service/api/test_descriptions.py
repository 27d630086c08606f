"""What both services describe in /openapi.json: every route asks for a token, and every generated call is answered as the
description says (in the long lane, by schemathesis in an environment of its own)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from idgraph.model.callers import Scope
from idgraph.web.application import FREE
from idgraph.web.server import serving
from metadata_service.api.app import create_app as create_metadata
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role, create_token
from tests.profile_service.api.conftest import LEVELS, Served, caller, problem, served_here, with_levels
from tests.profile_service.api.test_segments import segment, with_segments
from tests.retail import Pipeline, records

SCHEMATHESIS = ["uv", "tool", "run", "--from", "schemathesis==4.32.5", "st"]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@contextmanager
def profiles(folder: Path) -> Iterator[tuple[str, str]]:
    pipeline = Pipeline(folder, snapshot=with_segments(with_levels(LEVELS), segment("everybody")))
    pipeline.process(records(100))
    with served_here(pipeline, [caller("all", 100, True, list(Scope))]) as served:
        yield served.url, "all"


@contextmanager
def metadata(folder: Path) -> Iterator[tuple[str, str]]:
    app = create_metadata(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
    with serving(app) as url:
        yield url, create_token(app.state.service.database, "admin", Role.ADMIN)


def test_every_route_asks_for_a_token(served: Served) -> None:
    nobody, unknown = served.client(None), served.client("unknown")
    described = nobody.get("/openapi.json").json()["paths"]
    asked = [
        (method, path) for path, operations in described.items() for method in operations if path not in FREE
    ]
    assert len(asked) > 20
    for method, path in asked:
        for client in (nobody, unknown):
            problem(client.request(method, path.replace("{", "").replace("}", "")), 401)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("started", [profiles, metadata])
def test_generated_calls_are_answered_as_described(
    started: Callable[[Path], Iterator[tuple[str, str]]], tmp_path: Path
) -> None:
    if shutil.which("uv") is None or subprocess.run([*SCHEMATHESIS, "--version"], check=False).returncode:
        pytest.skip("schemathesis cannot be fetched")
    with started(tmp_path) as (url, token):  # type: ignore[attr-defined]
        assert httpx.get(f"{url}/openapi.json", trust_env=False).is_success
        checks = [word for check in CHECKS for word in ("-c", check)]
        done = subprocess.run(
            [
                *SCHEMATHESIS,
                "run",
                f"{url}/openapi.json",
                "-H",
                f"Authorization: Bearer {token}",
                *checks,
                "-n",
                "20",
                "--phases",
                "coverage,fuzzing",
                "--continue-on-failure",
                "--request-timeout",
                "20",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
