"""The profile service as a process over real servers: while the flow writes, each of them is killed and comes back, and so
is the service. An answer is right or 503, and the topic has the whole feed in the end. `make test` leaves it out."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from idgraph.app import wiring
from idgraph.app.settings.document import load
from tests.e2e.faults import AWAY_SECONDS, PATIENCE, Scene, killed_for_a_while, scene
from tests.installation import PROGRAM, until
from tests.servers.requirement import required
from tests.support.processes import free_port, listens

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

TOPIC = "faults-changes"
CALLERS = 4


class Readers:
    """The service beside a flow, and callers that keep asking."""

    def __init__(self, running: Scene) -> None:
        self.running = running
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        running.kafka.create(TOPIC)
        config = running.installation.config
        config.write_text(
            f"{config.read_text()}\n[profiles]\nport = {self.port}\n"
            f'[[profiles.topics]]\ntopic = "{TOPIC}"\nclearance = 100\n'
        )
        service = Path(load(config).directory) / "profiles.token"
        service.write_bytes((running.folder / "metadata" / ".idgraph" / "profiles.token").read_bytes())
        service.chmod(0o600)
        metadata = running.folder / "metadata" / "idgraph.toml"
        words = ("tokens", "add", "crm", "--role", "profiles", "--clearance", "100")
        added = subprocess.run([*PROGRAM, "-c", str(metadata), *words], check=True, capture_output=True)
        self._token = added.stdout.decode().strip()
        self._process: subprocess.Popen[bytes] | None = None
        self.restart()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def restart(self) -> None:
        self._process = self.running.installation.spawn("profiles", "serve", "profiles")
        until(lambda: listens(self.port), PATIENCE, "the profile service")

    def close(self) -> None:
        """SIGTERM, on which it ends well."""
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(PATIENCE) == 0

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self._token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def keep_asking(self, ids: list[str], known: dict[str, Any], ended: threading.Event) -> tuple[int, int]:
        """Look-ups and searches until the end; gives how many were answered, and how many refused."""
        answered = refused = 0
        with self.client() as client:
            while not ended.is_set():
                for name in ids:
                    for path in (f"/v1/profiles/{quote(name, safe='')}", "/v1/search?q=orders%3E0&limit=5"):
                        try:
                            answer = client.get(path)
                        except httpx.TransportError:
                            # The service itself was killed.
                            refused += 1
                            time.sleep(0.05)
                            continue
                        if answer.status_code == 503:
                            assert int(answer.headers["Retry-After"]) >= 1
                            assert answer.headers["Content-Type"] == "application/problem+json"
                            refused += 1
                        else:
                            assert answer.status_code == 200, (path, answer.text)
                            answered += 1
                            if path.startswith("/v1/profiles"):
                                self.is_right(answer.json(), known[name])
        return answered, refused

    @staticmethod
    def is_right(answer: dict[str, Any], known: dict[str, Any]) -> None:
        """A person that grows has at least the identifiers of before."""
        had = {(each["type"], each["value"]) for each in known["identifiers"]}
        assert had <= {(each["type"], each["value"]) for each in answer["identifiers"]}


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    with (
        required("boto3", "idgraph[dynamodb]"),
        required("elasticsearch", "idgraph[elasticsearch]"),
        ExitStack() as stack,
    ):
        made = Readers(stack.enter_context(scene(tmp_path_factory.mktemp("readers"))))
        stack.callback(made.close)
        yield made


@pytest.mark.parametrize("name", ["dynamodb", "elasticsearch", "kafka", "metadata", "service"])
def test_an_answer_is_right_or_503(readers: Readers, name: str) -> None:
    running = readers.running
    with wiring.opened(load(running.installation.config)) as resources:
        reader = wiring.profile_reader(load(running.installation.config), resources)
        known = {each.id: json.loads(json.dumps(each.canonical(False))) for each in reader.scan()}
    ids = list(known)[:20]
    victim = readers if name == "service" else getattr(running, name)
    ended = threading.Event()
    with ThreadPoolExecutor(CALLERS) as pool:
        asking: list[Future[tuple[int, int]]] = [
            pool.submit(readers.keep_asking, ids, known, ended) for _ in range(CALLERS)
        ]
        try:
            running.publish(killed_for_a_while(victim))
            time.sleep(2 * AWAY_SECONDS)
            running.settle()
        finally:
            ended.set()
        found = [each.result() for each in asking]
    answered, refused = (sum(each) for each in zip(*found, strict=True))
    print(f"{name}: {answered} answered, {refused} refused")
    assert answered
    assert running.differences() == []
    with readers.client() as client:
        for each in ids:
            assert client.get(f"/v1/profiles/{quote(each, safe='')}").status_code == 200


def test_the_topic_has_the_feed(readers: Readers) -> None:
    changes: list[tuple[str, str]] = []
    with readers.client() as client:
        cursor = None
        while True:
            answer = client.get("/v1/changes", params={"cursor": cursor} if cursor else {})
            page = answer.json()
            changes += [(each["kind"], each["profile"]) for each in page["items"]]
            if not page["items"] or page["next"] == cursor:
                break
            cursor = page["next"]
    assert changes
    until(lambda: set(changes) == entries(readers.running), PATIENCE, "the topic")


def entries(running: Scene) -> set[tuple[str, str]]:
    """Kind and profile of all records of the topic."""
    return {(json.loads(value)["kind"], key.decode()) for key, value in running.kafka.records(TOPIC)}
