"""A Pulsar for tests that want to publish to it, kill it and start it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from idgraph.model.pulsar import full_name
from tests.servers.requirement import required
from tests.support.pulsar import ANSWER_SECONDS, Standalone, pulsar, transactions

if TYPE_CHECKING:
    from pulsar import Client


class Pulsar:
    """A server that can die. Publishes with the client that other programs use."""

    def __init__(self, folder: Path, token: str = "", **settings: object) -> None:
        """`token` is an administrator's, where `settings` ask for one."""
        self._folder = folder
        self._token = token
        self._settings = settings
        self._stack = ExitStack()
        self._server: Standalone = self._stack.enter_context(pulsar(folder, settings, token))

    @property
    def settings(self) -> dict[str, Any]:
        """The table `[pulsar]`."""
        return {"service_url": self._server.service_url, "admin_url": self._server.admin_url}

    def kill(self) -> None:
        """kill -9."""
        self._server.process.kill()
        self._server.process.wait()

    def restart(self) -> None:
        """Start it again on the same folder and ports."""
        self._stack.close()
        self._server = self._stack.enter_context(pulsar(self._folder, self._settings, self._token))

    def close(self) -> None:
        self._stack.close()

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Ask the admin interface; `path` follows `/admin/v2/`."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = Request(f"{self._server.admin_url}/admin/v2/{path}", content, headers, method=method)
        with urlopen(request, timeout=ANSWER_SECONDS) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def create(self, *topics: str, partitions: int = 3) -> None:
        """Make topics; 0: without partitions."""
        for topic in topics:
            path = f"persistent/{full_name(topic)}"
            self.admin("PUT", f"{path}/partitions" if partitions else path, partitions or None)

    def transactions_of(self, topic: str, *words: str) -> list[str]:
        """A command that publishes in transactions, as `PulsarTransactions.java` says."""
        return transactions(self._server.service_url, full_name(topic), *words)

    @contextmanager
    def client(self) -> Iterator[Client]:
        from pulsar import AuthenticationToken, Client, ConsoleLogger, LoggerLevel

        token = AuthenticationToken(self._token) if self._token else None
        client = Client(self._server.service_url, token, logger=ConsoleLogger(LoggerLevel.Error))
        try:
            yield client
        finally:
            client.close()

    def publish(
        self, topic: str, payloads: Sequence[bytes | None], key: str | None = None, **producer: Any
    ) -> list[tuple[int, int, int, int]]:
        """Publish in order; gives partition, ledger, entry and place in the batch of each."""
        from pulsar import MessageId

        done: list[Any] = []
        with self.client() as client:
            sender = client.create_producer(full_name(topic), block_if_queue_full=True, **producer)
            for payload in payloads:
                more = {"partition_key": key} if key else {}
                sender.send_async(payload, lambda result, at: done.append((str(result), at)), **more)
            sender.flush()
        assert {result for result, _ in done} <= {"Result.Ok"}, done[:1]
        at = [MessageId.wrap(each) for _, each in done]
        return [(each.partition(), each.ledger_id(), each.entry_id(), each.batch_index()) for each in at]


@contextmanager
def running_pulsar(folder: Path, token: str = "", **settings: object) -> Iterator[Pulsar]:
    """A server with its data in a folder. Skips the test, with the reason, when it cannot be had."""
    with required("pulsar", "idgraph[pulsar]"):
        server = Pulsar(folder, token, **settings)
    try:
        yield server
    finally:
        server.close()
