"""The shop's events on the cluster, the profiles that come of them, and those of the same events on one machine."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.topics import publish_all
from idgraph.app import metadata_server
from idgraph.app.settings.document import load
from metadata_service.documents.reading import read_definition
from sinks.http.metadata import MetadataClient
from tests.cluster.shape import SPACE, Cluster
from tests.installation import EXAMPLES, Installation, Shop, retail
from tests.undisturbed import take

SPECS = tuple(EXAMPLES / "retail" / "specs" / f"{name}.json" for name in ("segment", "orders"))
FIRST, MORE, BACKLOG = 150, 50, 600
"""Events of a source at the beginning, that come in each later test, and that make several micro-batches."""


class Events:
    """Those of the shop, published part by part, and what there is of their profiles."""

    def __init__(self, up: Cluster) -> None:
        self.up = up
        self.published: dict[str, list[bytes]] = {}

    def publish(self, topic: str, many: int) -> str:
        """The next of a topic, and one of a person whom no event named before; an identifier of theirs."""
        known = self.published.setdefault(topic, [])
        some = retail(topic)[len(known) : len(known) + many]
        assert len(some) == many, f"{topic} has no more events"
        newcomer = f"newcomer-{topic}-{len(known)}"
        event: dict[str, Any] = json.loads(some[-1])
        if topic == "segment":
            event |= {"userId": newcomer, "anonymousId": newcomer, "messageId": newcomer}
        else:
            event["order_id"] = event["cart"]["id"] = newcomer
            event["customer"]["email"] = f"{newcomer}@example.com"
        some.append(json.dumps(event).encode() + b"\n")
        publish_all(self.up.brokers, [(topic, some)])
        known += some
        return f"user_id:{newcomer}" if topic == "segment" else f"cart_id:{newcomer}"

    def exported(self) -> list[str]:
        """All profiles with where each value came from."""
        return self.up.operator("idgraph", "export", "--provenance").splitlines()

    def are_those_of(self, one: OneMachine) -> None:
        """Law 1: waits until the cluster's profiles are one machine's, byte for byte."""
        expected = one.profiles(self.published)
        assert len(expected) > FIRST / 10
        self.up.until(lambda: self.exported() == expected, "the same profiles, byte for byte")


class OneMachine:
    """Installations of one machine that share a metadata service."""

    def __init__(self, folder: Path, shop: Shop) -> None:
        self._folder = folder
        self._shop = shop
        self._made = 0

    @classmethod
    @contextmanager
    def serving(cls, folder: Path, keyring: Path) -> Iterator[OneMachine]:
        """With the shop's specs, and the cluster's keyring."""
        (folder / "idgraph.toml").write_text(f'keyring = "{keyring}"\n')
        settings = load(folder / "idgraph.toml")
        with metadata_server.serving_here(settings) as url:
            token = (settings.directory / "admin.token").read_text()
            with MetadataClient(url, token) as client:
                for spec in SPECS:
                    client.put_spec(read_definition(spec), "tests")
            yield cls(folder, Shop(url, token, keyring))

    def profiles(self, published: Mapping[str, Sequence[bytes]]) -> list[str]:
        """The export of an installation that takes these events and nothing else."""
        self._made += 1
        installation = Installation(self._folder / f"embedded-{self._made}", self._shop)
        take(installation, published)
        return installation.export("--provenance").decode().splitlines()


def ask(up: Cluster, token: str, path: str) -> httpx.Response:
    """A request to one of the addresses that the profile service has at this moment."""
    slices = up.api.items(
        f"/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices",
        labelSelector="kubernetes.io/service-name=idgraph-profiles",
    )
    ready = [
        each["addresses"][0]
        for part in slices
        for each in part.get("endpoints") or ()
        if each["conditions"]["ready"]
    ]
    assert ready, "the profile service has no address"
    return httpx.get(
        f"https://{random.choice(ready)}:8420{path}",
        headers={"Authorization": f"Bearer {token}"},
        verify=False,
        timeout=30,
    )


def await_profile(up: Cluster, token: str, identifier: str) -> dict[str, Any]:
    def found() -> Any:
        answer = ask(up, token, f"/v1/profiles/{identifier}")
        return answer.json() if answer.is_success else None

    profile: dict[str, Any] = up.until(found, f"the profile of {identifier}")
    return profile


@contextmanager
def asking(up: Cluster, token: str, identifier: str) -> Iterator[None]:
    """A caller who looks a person up again and again, and must have an answer each time."""
    ends = threading.Event()
    answered, refused = 0, []

    def ask_on() -> None:
        nonlocal answered
        while not ends.wait(0.2):
            try:
                ask(up, token, f"/v1/profiles/{identifier}").raise_for_status()
                answered += 1
            except (httpx.HTTPError, AssertionError) as error:
                refused.append(f"{time.strftime('%X')} {error!r}")

    thread = threading.Thread(target=ask_on, name="caller", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(60)
    assert not refused, (refused[:10], len(refused), answered)
    assert answered
