"""Pages and API over 100,000 attributes and 1,000 specs; then a hundred pollers, ten editors and a thousand new attributes a
second at once, after which no edit is lost and each poller has what the service has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from benchmarks.latency import percentiles
from benchmarks.product import installed
from benchmarks.scale.discovered import AT_ONCE, changes, uncapped
from benchmarks.workload import EXAMPLE
from idgraph.app import metadata_access
from idgraph.app.settings.document import Settings
from idgraph.model.attributes import AttributeDefinition, DataType
from metadata_service.documents.reading import read_definition
from sinks.http.metadata import MetadataClient

ATTRIBUTES = 100_000
SPECS = 1000
ROUNDS = 40
POLLERS = 100
EDITORS = 10
EDITED = 3
"""Attributes that all editors edit."""
UPDATES_PER_SECOND = 1000
SECONDS = 10.0

PAGES = (
    "/ui/",
    "/ui/attributes",
    "/ui/attributes?q=area7+field",
    "/ui/attributes?q=field99999",
    "/ui/attributes?status=discovered&source=segment",
    "/ui/specs",
    "/ui/specs?q=type77",
    "/v1/attributes?q=field99999",
    "/v1/specs",
)


def measure(folder: Path) -> dict[str, Any]:
    """Milliseconds of the clock by page, and what the load came to."""
    with (
        installed(folder) as (_, settings),
        closing(metadata_access.metadata_client(settings, 60.0)) as client,
    ):
        uncapped(client)
        for first in range(0, ATTRIBUTES, AT_ONCE):
            client.send(changes(first, AT_ONCE))
        assert client.discovery_counts().attributes >= ATTRIBUTES
        spec = read_definition(EXAMPLE / "specs" / "segment.json")
        for number in range(SPECS):
            client.put_spec(
                spec.model_copy(update={"name": f"spec-{number}", "event_type": f"type{number}"}), "benchmark"
            )
        with httpx.Client(base_url=settings.metadata.url, timeout=60, follow_redirects=True) as browser:
            answer = browser.post("/ui/sign-in", data={"token": metadata_access.metadata_token(settings)})
            answer.raise_for_status()
            figures: dict[str, Any] = {page: _times(browser, page, settings) for page in PAGES}
        return figures | _load(settings, client)


def _times(browser: httpx.Client, page: str, settings: Settings) -> dict[str, Any]:
    headers = {}
    if page.startswith("/v1"):
        headers["Authorization"] = f"Bearer {metadata_access.metadata_token(settings)}"
    spent = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        answer = browser.get(page, headers=headers)
        spent.append(1e3 * (time.perf_counter() - started))
        if answer.status_code != 200:
            raise RuntimeError(f"{page}: {answer.status_code}")
    spent.sort()
    return {"p50": round(spent[ROUNDS // 2], 1), "p95": round(spent[int(0.95 * ROUNDS)], 1)}


def _load(settings: Settings, client: MetadataClient) -> dict[str, Any]:
    """All at once, each poller and editor with a connection of its own."""
    paths = [f"edited.field{number}" for number in range(EDITED)]
    for path in paths:
        client.put_attribute(AttributeDefinition(path=path, data_type=DataType.STRING, description="0"))
    ended = threading.Event()
    ready = threading.Barrier(POLLERS + EDITORS + 1)
    with ThreadPoolExecutor(POLLERS + EDITORS) as pool:
        pollers = [pool.submit(_poll, settings, ready, ended) for _ in range(POLLERS)]
        editors = [pool.submit(_edit, settings, paths[n % EDITED], ready, ended) for n in range(EDITORS)]
        ready.wait()
        refused, late = _send(client)
        ended.set()
        edits = [edit for each in editors for edit in each.result()]
        now = client.snapshot()
        assert now is not None
        behind = sum(each.result()[0] != now.etag for each in pollers)
        polled = sum(each.result()[1] for each in pollers)
    counted = 0
    for path in paths:
        attribute = client.get_attribute(path)
        assert attribute is not None
        counted += int(attribute.description)
    return {
        "edits": len(edits),
        "lost edits": len(edits) - counted,
        "an edit, ms": percentiles([1e3 * each for each in edits]),
        "schema updates per second": UPDATES_PER_SECOND,
        "schema updates refused": refused,
        "a batch of updates behind its time at the end, ms": round(1e3 * late),
        "answers to pollers": polled,
        "pollers that are behind at the end": behind,
    }


def _send(client: MetadataClient) -> tuple[int, float]:
    """Half a second's updates at a time, as a flow does; gives how many were refused, and seconds behind at the end."""
    some = UPDATES_PER_SECOND // 2
    started = time.perf_counter()
    refused = 0
    for number in range(int(2 * SECONDS)):
        time.sleep(max(0.0, started + number / 2 - time.perf_counter()))
        refused += len(client.send(changes(20_000_000 + some * number, some)))
    return refused, time.perf_counter() - started - SECONDS + 0.5


def _poll(settings: Settings, ready: threading.Barrier, ended: threading.Event) -> tuple[str, int]:
    """Follow the snapshot as a flow does; gives the last ETag and how many answers there were."""
    headers = {"Authorization": f"Bearer {metadata_access.metadata_token(settings)}"}
    answers = 0
    with httpx.Client(base_url=settings.metadata.url, headers=headers, timeout=120) as http:
        etag = http.get("/v1/snapshot").headers["ETag"]
        ready.wait()
        while True:
            was_ended = ended.is_set()
            answer = http.get("/v1/snapshot", params={"wait": 2}, headers={"If-None-Match": etag})
            if answer.status_code == 304:
                if was_ended:
                    return etag, answers
                continue
            answer.raise_for_status()
            etag = answer.headers["ETag"]
            answers += 1


def _edit(settings: Settings, path: str, ready: threading.Barrier, ended: threading.Event) -> list[float]:
    """Count one up in what another editor may have counted up meanwhile; gives the seconds of each edit."""
    spent: list[float] = []
    headers = {"Authorization": f"Bearer {metadata_access.metadata_token(settings)}"}
    with httpx.Client(base_url=settings.metadata.url, headers=headers, timeout=120) as http:
        edit: Callable[[int, str], httpx.Response] = lambda number, etag: http.put(  # noqa: E731
            f"/v1/attributes/{path}",
            json={"path": path, "data_type": "string", "description": f"{number}"},
            headers={"If-Match": etag},
        )
        ready.wait()
        while not ended.is_set():
            started = time.perf_counter()
            before = http.get(f"/v1/attributes/{path}")
            answer = edit(int(before.json()["description"]) + 1, before.headers["ETag"])
            if answer.status_code != 412:
                answer.raise_for_status()
                spent.append(time.perf_counter() - started)
            ended.wait(1)
    return spent
