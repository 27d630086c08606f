"""Look-ups over HTTP at fixed rates, beside the bare read of the store and a bare answer of the framework: `make bench
ARGS="profiles --fragments 1000000"`.

Requests are sent when they are due, whether or not earlier ones were answered, and each is timed from when it was due: a
service that falls behind shows it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from fastapi import FastAPI, Response

from benchmarks.latency import percentiles
from benchmarks.pipeline import pipeline
from benchmarks.scale.growing_store import GrowingStore
from benchmarks.sealing_cost import snapshot
from idgraph.app import metadata_access, profile_server, wiring
from idgraph.app.demo.example import Example
from idgraph.app.metadata_database import service_key
from idgraph.app.metadata_server import serving_here
from idgraph.app.settings.document import Settings
from idgraph.model.identifiers import Identifier
from idgraph.web.server import serve
from metadata_service.documents.reading import read_attributes
from metadata_service.storage.database import open_database
from metadata_service.storage.tokens import Role, add_token
from tests.support.processes import free_port

RATES = (100, 200, 400, 1000, 2000)
"""In turn, until one is more than the service holds."""
HELD = 0.98
SECONDS = 10.0
CONNECTIONS = 32
HOT = 300
"""Persons who are looked up again and again: the service keeps their answers."""
BARE = "bare"
PAGES = "pages"
"""A profile service where the pages look for it."""


def measure_servers(folder: Path, fragments: int) -> dict[str, Any]:
    """`measure` over DynamoDB Local and Elasticsearch."""
    from tests.support.stores import dynamodb, elasticsearch

    with dynamodb(folder / "dynamodb") as tables, elasticsearch(folder / "elasticsearch") as node:
        store = f'[store]\nkind = "dynamodb"\nregion = "eu-central-1"\nendpoint = "{tables.url}"\n'
        index = f'[index]\nkind = "elasticsearch"\nurl = "{node.url}"\nreplicas = 0\n'
        os.environ |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        return measure(folder / "idgraph", fragments, f"\n{store}\n{index}")


def measure(folder: Path, fragments: int, more: str = "") -> dict[str, Any]:
    """By rate: p50, p99 and the largest, in milliseconds. `more` of the configuration, in TOML."""
    os.environ["IDGRAPH_PROFILES__PORT"] = str(free_port())
    with pipeline(folder, snapshot(protected=True), more) as stages:
        store = GrowingStore(stages)
        store.grow(fragments)
        stored = list(stages.tools.store.ids())
        # A small store has none of them.
        ids = [each for each in stored if each.startswith("user_id:")] or stored
        wanted = [Identifier.parse(each) for each in random.Random(3).choices(ids, k=20_000)]
        reader = wiring.profile_reader(stages.settings, stages.tools)
        figures: dict[str, Any] = {"fragments": fragments, "found": 0, "bare read": {}}
        spent = []
        for each in wanted[:2000]:
            started = time.perf_counter()
            figures["found"] += bool(reader.lookup(each))
            spent.append(1000 * (time.perf_counter() - started))
        figures["bare read"] = percentiles(spent)
        settings = stages.settings
    with serving_here(settings, port_of(settings.metadata.url)):
        with metadata_access.metadata_client(settings) as client:
            attributes = Example("retail").attributes()
            for definition, _, _ in read_attributes(attributes) if attributes else ():
                client.put_attribute(definition, "benchmark")
        database = open_database(settings.database_url(), service_key(settings).history)
        with closing(database), database.write() as edit:
            token = add_token(edit, "benchmark", Role.PROFILES, clearance=100)
            admin = add_token(edit, "admin", Role.ADMIN, clearance=100)
        httpx.put(
            f"{settings.metadata.url}/v1/segments/ios?reason=benchmark",
            json={"name": "ios", "q": "activity.platform=ios"},
            headers={"Authorization": f"Bearer {admin}"},
        ).raise_for_status()
        paths = [f"/v1/profiles/{each}" for each in wanted]
        service = ("profiles", str(settings.file))
        search = ["/v1/search?q=activity.platform%3Dios&limit=20"]
        counts = ["/v1/search/count?q=activity.platform%3Dios"]
        batch = [[str(each) for each in wanted[start : start + 100]] for start in range(0, 5000, 100)]
        bodies = [json.dumps({"identifiers": some}).encode() for some in batch]
        for name, arguments, processes, requests, rates in (
            ("profile service", service, 1, list(map(_get, paths)), RATES),
            ("profile service, two processes", service, 2, list(map(_get, paths)), RATES),
            ("kept answers", service, 1, list(map(_get, paths[:HOT])), RATES),
            (
                "unchanged answers",
                service,
                1,
                [_get(path, "If-None-Match: *\r\n") for path in paths[:HOT]],
                RATES,
            ),
            ("100 at once", service, 1, [_post("/v1/profiles/lookup", each) for each in bodies], (2,)),
            ("search, 20 profiles", service, 1, list(map(_get, search)), (10,)),
            ("count", service, 1, list(map(_get, counts)), (50,)),
            ("count of a segment", service, 1, [_get("/v1/segments/ios/count")], (50,)),
            ("20 members of a segment", service, 1, [_get("/v1/segments/ios/members?limit=20")], (10,)),
            (
                "segments of 100 profiles",
                service,
                1,
                [_post("/v1/segments/member-of", each) for each in bodies],
                (2,),
            ),
            (BARE, (BARE, ""), 1, list(map(_get, paths)), RATES),
        ):
            with ExitStack() as stack:
                services = [stack.enter_context(served(arguments)) for _ in range(processes)]
                figures[name] = {}
                for rate in rates:
                    row = asyncio.run(_asked(services, requests, token, rate))
                    figures[name][f"{rate}/s"] = row
                    if row["answered_per_second"] < HELD * rate:
                        break
        with served((PAGES, str(settings.file))):
            figures["pages"] = _pages(settings, admin, wanted)
    return figures


def _pages(settings: Settings, token: str, wanted: Sequence[Identifier]) -> dict[str, Any]:
    """The pages of searches and of profiles; those of the catalogue are measured by `scale-pages`."""
    figures = {}
    with httpx.Client(base_url=settings.metadata.url, timeout=60, follow_redirects=True) as browser:
        browser.post("/ui/sign-in", data={"token": token}).raise_for_status()
        for name, pages in {
            "search": ["/ui/profiles?q=activity.platform%3Dios"],
            "profile": [f"/ui/profiles/{each}" for each in wanted[:100]],
            "profile as JSON": [f"/ui/profiles/{each}?tab=json" for each in wanted[:100]],
        }.items():
            spent = []
            for number in range(100):
                started = time.perf_counter()
                answer = browser.get(pages[number % len(pages)])
                spent.append(1000 * (time.perf_counter() - started))
                if answer.status_code != 200:
                    raise RuntimeError(f"{name}: {answer.status_code}")
            figures[name] = percentiles(spent) | {"p95": round(sorted(spent)[95], 1)}
    return figures


def _get(path: str, header: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode()


def _post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


class _Service(NamedTuple):
    port: int
    process: int

    def cpu_seconds(self) -> float:
        """CPU seconds that the process has used so far (Linux)."""
        user, system = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(arguments: tuple[str, str]) -> Iterator[_Service]:
    """A service in a process of its own."""
    environment = os.environ | {"IDGRAPH_PROFILES__REQUESTS_PER_SECOND": "1000000"}
    command = [sys.executable, "-m", "benchmarks.profiles", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield _Service(port_of(process.stdout.readline().strip()), process.pid)
        finally:
            process.terminate()


async def _asked(
    services: Sequence[_Service], requests: Sequence[bytes], token: str, rate: int
) -> dict[str, Any]:
    """Ask at a rate. `cpu_us` are microseconds per request: of the services, and of this process, which asks. Raises
    RuntimeError for an answer other than 200 and 304."""
    spent: list[float] = []
    due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    allowed = f"\r\nAuthorization: Bearer {token}\r\n".encode()

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            moment, request = await due.get()
            writer.write(request.replace(b"\r\n", allowed, 1))
            head = await reader.readuntil(b"\r\n\r\n")
            if head[9:12] != b"304":
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                await reader.readexactly(length)
            if head[9:12] not in (b"200", b"304"):
                raise RuntimeError(head[:20].decode())
            spent.append(1000 * (time.perf_counter() - moment))
            due.task_done()

    # With more connections, the service closes idle ones.
    ports = [services[number % len(services)].port for number in range(min(CONNECTIONS, rate))]
    tasks = [asyncio.create_task(ask(port)) for port in ports]
    await asyncio.sleep(1.5)  # until the callers are known
    own, theirs = time.process_time(), sum(each.cpu_seconds() for each in services)
    started = time.perf_counter()
    for number in range(int(rate * SECONDS)):
        moment = started + number / rate
        if (early := moment - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        due.put_nowait((moment, requests[number % len(requests)]))
    waiting = asyncio.create_task(due.join())
    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    answered = len(spent) / (time.perf_counter() - started)
    used = sum(each.cpu_seconds() for each in services) - theirs, time.process_time() - own
    cpu_us = {
        name: round(1e6 * each / len(spent)) for name, each in zip(("service", "asking"), used, strict=True)
    }
    for task in (waiting, *tasks):
        if task.done() and task.exception() is not None:
            raise task.exception() or RuntimeError
        task.cancel()
    return {**percentiles(spent), "answered_per_second": round(answered), "cpu_us": cpu_us}


def _bare() -> FastAPI:
    """The cost of the framework alone: the same route, a thread, an answer of two kilobytes."""
    app = FastAPI()
    body = b'{"id":"' + b"x" * 2000 + b'"}'
    app.state.before_shutdown = lambda: None

    @app.get("/v1/profiles/{identifier}")
    def get(identifier: str) -> Response:  # noqa: ARG001 - the same route
        return Response(body, media_type="application/json")

    return app


def _main(kind: str, config: str) -> None:
    def show(url: str) -> None:
        print(url, flush=True)

    if kind == BARE:
        serve(_bare(), "127.0.0.1", 0, show)
    else:
        from idgraph.app.settings.document import load

        settings: Settings = load(Path(config))
        with profile_server.application(settings) as app:
            serve(app, "127.0.0.1", settings.profiles.port if kind == PAGES else 0, show)


if __name__ == "__main__":
    _main(*sys.argv[1:])
