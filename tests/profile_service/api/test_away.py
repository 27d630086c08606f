"""Store, index, keys and metadata go away and come back while requests arrive: an answer is right, or 503."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.model.errors import IdgraphError, KeyServiceError, ProfileIndexError, PublishError, StoreError
from idgraph.projection.behaviour import BehaviourReader
from profile_service.api.app import THREADS
from tests.profile_service.api.conftest import LEVELS, Served, caller, problem, served_here, with_levels
from tests.profile_service.api.every_part import ALL, EveryPart, every_part, filled
from tests.profile_service.api.every_part import CALLS as EVERY_CALL
from tests.projection.test_behaviour import ORDERS, derived, with_behaviour
from tests.retail import Pipeline, records
from transforms.privacy.sealing import DataKeys

USER = "user_id:4493"
CALLERS = 4


class Leaving:
    """What it wraps, or the error of each call while it is away."""

    def __init__(self, kept: Any, error: IdgraphError) -> None:
        self._kept, self._error = kept, error
        self.is_away = False
        self.instead: Callable[..., Any] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kept, name)
        if self.is_away and callable(found):
            return self._fail
        return self.instead or found

    def _fail(self, *_words: Any, **_named: Any) -> Any:
        raise type(self._error)(str(self._error))


Parts = dict[str, Any]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[Served, Parts]]:
    pipeline = Pipeline(tmp_path, snapshot=with_levels(LEVELS))
    pipeline.process(records(400))
    store = Leaving(pipeline.store, StoreError("the store is away"))
    index = Leaving(pipeline.index, ProfileIndexError("the index is away"))
    provider = Leaving(pipeline.provider, KeyServiceError("the key service is away"))
    key_store = Leaving(pipeline.key_store, StoreError("the store of keys is away"))
    pipeline.store, pipeline.index = store, index
    # No cache: a key that is at hand is used while its service is away, which is right as well.
    keys = DataKeys(provider, key_store, cache_seconds=0)
    pipeline.data_keys = keys
    with served_here(pipeline, [caller("everything", 100, may_reveal=True)]) as served:
        yield served, {"store": store, "index": index, "keys": provider, "key store": key_store}


Call = Callable[[httpx.Client], httpx.Response]

CALLS: dict[str, Call] = {
    "look-up": lambda client: client.get(f"/v1/profiles/{USER}"),
    "look-ups": lambda client: client.post(
        "/v1/profiles/lookup", json={"identifiers": [USER, "user_id:480"]}
    ),
    "nobody": lambda client: client.get("/v1/profiles/user_id:nobody"),
    "reveal": lambda client: client.get(f"/v1/profiles/{USER}", params={"reveal": True, "purpose": "a test"}),
    "explain": lambda client: client.get(f"/v1/profiles/{USER}/explain"),
    "search": lambda client: client.get("/v1/search", params={"q": "demographics.age>=30", "limit": 5}),
    "count": lambda client: client.get("/v1/search/count", params={"q": "demographics.age>=30"}),
    "facets": lambda client: client.get("/v1/search/facets", params={"path": "demographics.age"}),
    "changes": lambda client: client.get("/v1/changes", params={"limit": 5}),
    "ready": lambda client: client.get("/health/ready"),
}

STORED = {"look-up", "look-ups", "nobody", "reveal", "explain", "search", "changes"}
REFUSED = {
    "store": STORED,
    "index": {"search", "count", "facets"},
    "keys": {"reveal"},
    "key store": {"reveal"},
}
"""What answers 503 while a part is away. All else answers as ever."""


def answered(call: Call, client: httpx.Client) -> tuple[int, Any]:
    answer = call(client)
    body = answer.json()
    if answer.status_code == 503:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert int(answer.headers["Retry-After"]) >= 1
        assert "away" not in body["detail"], "what an adapter says is for the log"
        return 503, None
    body.pop("next", None)
    return answer.status_code, body


@pytest.mark.long
def test_an_answer_is_right_or_503(parts: tuple[Served, Parts]) -> None:
    served, leaving = parts
    client = served.client("everything")
    right = {name: answered(call, client) for name, call in CALLS.items()}
    assert {name: status for name, (status, _) in right.items()} == dict.fromkeys(CALLS, 200) | {
        "nobody": 404
    }
    assert "unreadable" not in str(right["reveal"])
    ended = threading.Event()

    def keep_asking() -> set[str]:
        refused = set()
        with httpx.Client(
            base_url=served.url, headers=dict(client.headers), timeout=60, trust_env=False
        ) as own:
            while not ended.is_set():
                for name, call in CALLS.items():
                    found = answered(call, own)
                    assert found in (right[name], (503, None)), name
                    if found[0] == 503:
                        refused.add(name)
        return refused

    with ThreadPoolExecutor(CALLERS) as pool:
        asking = [pool.submit(keep_asking) for _ in range(CALLERS)]
        try:
            for away in (*REFUSED, None, "everything"):
                gone = list(leaving) if away == "everything" else [away] if away else []
                for name in gone:
                    leaving[name].is_away = True
                refused = set().union(*(REFUSED[name] for name in gone))
                for name, call in CALLS.items():
                    assert answered(call, client) == ((503, None) if name in refused else right[name]), (
                        away,
                        name,
                    )
                for name in gone:
                    leaving[name].is_away = False
        finally:
            ended.set()
        assert all(each.result() <= set().union(*REFUSED.values()) for each in asking)
    assert {name: answered(call, client) for name, call in CALLS.items()} == right


def test_probes_are_answered_while_every_thread_waits(parts: tuple[Served, Parts]) -> None:
    served, leaving = parts
    comes_back = threading.Event()
    hanging = threading.Semaphore(0)

    def hang(*_words: Any, **_named: Any) -> Any:
        hanging.release()
        comes_back.wait(120)
        raise StoreError("the store is away")

    with ThreadPoolExecutor(2 * THREADS) as pool:
        leaving["store"].instead = hang
        try:
            explain = CALLS["explain"]
            asked = [pool.submit(answered, explain, served.client("everything")) for _ in range(2 * THREADS)]
            for _ in range(THREADS):
                assert hanging.acquire(timeout=60)
            for path in ("/health/live", "/health/ready"):
                # Long before a thread is free again.
                assert served.client(None).get(path, timeout=30).status_code == 200
        finally:
            comes_back.set()
        assert {each.result() for each in asked} == {(503, None)}


PATTERN = derived("behaviour.bought", pattern={"activities": ["order"], "pattern": "A B"})


def test_probes_are_answered_while_row_patterns_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour(definitions=(PATTERN,)))
    pipeline.process(ORDERS)
    begins, ends, derive = threading.Event(), threading.Event(), BehaviourReader.of

    def slow(*asked: Any) -> Any:
        begins.set()
        ends.wait(120)
        return derive(*asked)

    monkeypatch.setattr(BehaviourReader, "of", slow)
    with served_here(pipeline, [caller("everything", 100)]) as served, ThreadPoolExecutor(1) as pool:
        look_up = partial(served.client("everything").get, "/v1/profiles/email:p1@example.com", timeout=120)
        looked_up = pool.submit(look_up)
        try:
            assert begins.wait(60)
            assert served.client(None).get("/health/live", timeout=30).status_code == 200
        finally:
            ends.set()
        assert looked_up.result().json()["attributes"]["behaviour"]["bought"]["count"] == 1


def test_without_the_metadata_service_all_goes_on(parts: tuple[Served, Parts]) -> None:
    served, _ = parts
    client = served.client("everything")
    right = {name: answered(call, client) for name, call in CALLS.items()}
    served.metadata.is_away = True
    assert {name: answered(call, client) for name, call in CALLS.items()} == right


ONCE = {
    "POST /v1/flows/{name}/pause",
    "POST /v1/flows/{name}/resume",
    "POST /v1/me/invitations/accept",
    "POST /v1/me/invitations/decline",
    "POST /v1/me/households/{household}/leave",
    "POST /v1/jobs",
    "POST /v1/jobs/{job}/resume",
    "POST /v1/dead-letters/replay",
    "POST /v1/dead-letters/drop",
}
"""Calls that are answered in another way when they are repeated."""
READING = {"lookup", "contacts", "preview", "search", "count", "facets", "member-of"}
"""Ends of paths to which a POST changes nothing."""
VOLATILE = {"is_stale", "next", "search", "age_seconds", "cursor", "expires", "etag", "at"}
OFTEN = {
    "store": 30,
    "index": 10,
    "keys": 1,
    "key store": 1,
    "source": 2,
    "households": 5,
    "dead letters": 5,
    "flows": 2,
}
"""By part, how many operations at least cannot be answered without it."""


class SourceAwayError(PublishError):
    def __init__(self, message: str) -> None:
        super().__init__(message, published=0)


def right_or_503(whole: EveryPart, client: httpx.Client, operation: str) -> Any:
    """The status, and what does not change by itself of what was read; None for 503."""
    client.headers["Authorization"] = f"Bearer {whole.person if '/v1/me/' in f'{operation}/' else ALL}"
    answer = whole.call(client, operation)
    if answer.status_code == 503:
        assert int(answer.headers["Retry-After"]) >= 1
        assert "away" not in problem(answer, 503)["detail"]
        return None
    return answer.status_code, stable(answer.json()) if is_read(operation) else None


def is_read(operation: str) -> bool:
    """Whether equal calls have equal answers: each reveal makes the audit log longer."""
    is_reading = operation.startswith("GET") or operation.rpartition("/")[2] in READING
    return is_reading and "/audit" not in operation


def stable(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: stable(each) for name, each in node.items() if name not in VOLATILE}
    return [stable(each) for each in node] if isinstance(node, list) else node


@pytest.mark.long
def test_every_operation_is_right_or_503(tmp_path: Path) -> None:
    """Found by review: this was known of ten operations."""
    leaving: Parts = {}

    def wrapped(name: str, part: Any) -> Any:
        error = SourceAwayError if name == "source" else StoreError
        return leaving.setdefault(name, Leaving(part, error(f"the {name} is away")))

    pipeline = filled(tmp_path)
    leaving["index"] = pipeline.index = Leaving(pipeline.index, ProfileIndexError("the index is away"))
    leaving["keys"] = provider = Leaving(pipeline.provider, KeyServiceError("the key service is away"))
    pipeline.store = wrapped("store", pipeline.store)
    pipeline.data_keys = DataKeys(provider, wrapped("key store", pipeline.key_store), cache_seconds=0)
    operations = [each for each in EVERY_CALL if each not in ONCE]
    # What writes comes last: it changes what is read.
    operations.sort(key=is_read, reverse=True)
    with every_part(pipeline, wrapped=wrapped) as whole:
        client = whole.served.client(ALL)

        def answers() -> dict[str, Any]:
            return {each: right_or_503(whole, client, each) for each in operations}

        assert leaving.keys() == OFTEN.keys()
        for name, part in (*leaving.items(), ("metadata", whole.served.metadata)):
            right = {each: right_or_503(whole, client, each) for each in filter(is_read, operations)}
            part.is_away = True
            found = answers()
            part.is_away = False
            refused = {each for each, answer in found.items() if answer is None}
            assert (len(refused) >= OFTEN[name]) if name in OFTEN else not refused, (name, refused)
            for operation in found.keys() - refused:
                assert 200 <= found[operation][0] < 300, (name, operation)
                assert found[operation] == right.get(operation, found[operation]), (name, operation)
