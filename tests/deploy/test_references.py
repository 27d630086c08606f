"""The HTTP requests of the probes are served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from idgraph.app.settings.document import load
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from tests.app.test_observation import World, got
from tests.deploy.manifests import DEPLOY, containers, documents, pods

pytestmark = pytest.mark.long


PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@contextmanager
def flow_that_runs(folder: Path) -> Iterator[str]:
    with World().observed(folder) as (url, _):
        yield url


@contextmanager
def metadata_that_runs(folder: Path) -> Iterator[str]:
    with serving(create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))) as url:
        yield url


SERVERS = {"flow": flow_that_runs, "metadata": metadata_that_runs}


@pytest.mark.parametrize("name", SERVERS)
def test_probes_ask_what_is_served(tmp_path: Path, name: str) -> None:
    (part,) = [
        each
        for _, pod in pods(documents("retail"))
        for each in containers(pod)
        if each["name"] == name and "ports" in each
    ]
    ports = {port["name"]: port["containerPort"] for port in part["ports"]}
    served_at = {"flow": 9410, "metadata": 8410}
    asked = [part[probe]["httpGet"] for probe in PROBES]
    with SERVERS[name](tmp_path) as url:
        for each in asked:
            assert ports[each["port"]] == served_at[name]
            assert got(url + each["path"])[0] == 200
    # What ends a process asks only whether it lives.
    assert asked[2]["path"] == "/health/live"


@pytest.mark.parametrize("name", SERVERS)
def test_what_compose_asks_is_served(compose: dict[str, Any], tmp_path: Path, name: str) -> None:
    program = compose["services"][name]["healthcheck"]["test"][-1]
    (asked,) = re.findall(r"urlopen\('([^']+)'", program)
    settings = load(DEPLOY / "compose" / "idgraph.toml")
    served_at = {"flow": settings.metrics.port, "metadata": urlsplit(settings.metadata.url).port}
    assert urlsplit(asked).port == served_at[name]
    with SERVERS[name](tmp_path) as url:
        assert got(url + urlsplit(asked).path)[0] == 200
