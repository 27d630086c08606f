"""Throttling, outages and half-done batches, between a store and a real DynamoDB."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="boto3 is not installed: pip install -e .[dynamodb]")

from botocore.exceptions import ClientError, ReadTimeoutError

from idgraph.model.errors import StoreError
from idgraph.model.store import NEW, FragmentWrite
from idgraph.model.tombstones import FragmentSummary
from sinks import aws_connection
from sinks.dynamodb import client as dynamo_client
from sinks.dynamodb import leases as dynamo_leases
from sinks.dynamodb.client import GET_KEYS, THREADS, DynamoClient, Item
from sinks.dynamodb.connection import DynamoRefusedError, TablesLocation, connect
from sinks.dynamodb.data_keys import DynamoDataKeys
from sinks.dynamodb.profiles import DynamoProfileStore
from tests.contracts.implementations import hashed_name
from tests.servers.dynamodb import place
from tests.servers.faulty_proxy import (
    Fault,
    broken,
    cut,
    faulty_proxy,
    half_an_answer,
    half_unprocessed,
    lost_answer,
    throttled,
)
from tests.support.processes import free_port
from transforms.privacy.keys import WrappedKey

pytestmark = pytest.mark.long


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[TablesLocation, deque[Fault]]]:
    real = place(tmp_path)
    assert real.endpoint
    with faulty_proxy(real.endpoint) as (url, faults):
        yield real._replace(endpoint=url), faults


@pytest.fixture
def store(proxied: tuple[TablesLocation, deque[Fault]]) -> Iterator[DynamoProfileStore]:
    opened = DynamoProfileStore(proxied[0], hashed_name)
    yield opened
    opened.close()


def writes(number: int, version: int = NEW) -> list[FragmentWrite]:
    return [FragmentWrite(f"a:{each}", version, b"s", frozenset({f"mail:{each}"})) for each in range(number)]


@pytest.mark.parametrize("fault", [throttled, broken, cut])
def test_what_passes_is_tried_again(
    store: DynamoProfileStore, proxied: tuple[TablesLocation, deque[Fault]], fault: Fault
) -> None:
    faults = proxied[1]
    faults.extend([fault] * 2)
    assert store.write(writes(3)) == set()
    assert_reads_pass(store, faults, fault)


def test_of_half_an_answer_nothing_is_believed(
    store: DynamoProfileStore, proxied: tuple[TablesLocation, deque[Fault]]
) -> None:
    assert store.write(writes(3)) == set()
    assert_reads_pass(store, proxied[1], half_an_answer)


def assert_reads_pass(store: DynamoProfileStore, faults: deque[Fault], fault: Fault) -> None:
    """Whatever is asked for, twice in vain."""
    for ask, found in (
        (lambda: store.read(["a:0", "a:1", "a:2"]), 3),
        (lambda: store.find("mail:1"), 1),
        (lambda: store.find_all(["mail:1", "mail:2"], 9), 2),
        (store.outbox, 3),
    ):
        faults.extend([fault] * 2)
        assert len(ask()) == found
        assert not faults


def test_what_was_not_processed_is_given_again(
    store: DynamoProfileStore, proxied: tuple[TablesLocation, deque[Fault]]
) -> None:
    faults = proxied[1]
    faults.append(half_unprocessed)
    assert store.write(writes(20)) == set()
    faults.extend([half_unprocessed] * 2)
    assert len(store.read([f"a:{each}" for each in range(20)])) == 20
    assert not faults
    assert all(store.find(f"mail:{each}") == [f"a:{each}"] for each in range(20))


def test_a_write_whose_answer_was_lost_is_there_once_and_in_the_outbox(
    store: DynamoProfileStore, proxied: tuple[TablesLocation, deque[Fault]]
) -> None:
    faults = proxied[1]
    without_links = [each._replace(identifiers=frozenset({each.id})) for each in writes(3)]
    faults.append(lost_answer)
    assert store.write(without_links) == {"a:0", "a:1", "a:2"}, "its own write is in the way"
    assert {each.version for each in store.read(["a:0", "a:1", "a:2"]).values()} == {1}
    assert len(store.outbox()) == 3


class Losing:
    """A client of boto3 that does what one operation asks for, and loses the first answer to each request of it."""

    def __init__(self, client: Any, operation: str) -> None:
        self._client = client
        self._operation = operation
        self._asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return self._lose if name == self._operation else getattr(self._client, name)

    def _lose(self, **request: Any) -> Any:
        answer = getattr(self._client, self._operation)(**request)
        if repr(request) in self._asked:
            return answer
        self._asked.add(repr(request))
        raise ReadTimeoutError(endpoint_url="http://dynamodb")


def losing(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on stores are opened that lose the answers of this operation."""

    def lost(where: TablesLocation, threads: int, service: str = "dynamodb") -> Losing:
        return Losing(connect(where, threads, service), operation)

    monkeypatch.setattr(dynamo_client, "connect", lost)


def test_an_erasure_whose_answer_was_lost_reports_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else knows by then whose dead letters must go."""
    losing("update_item", monkeypatch)
    store = DynamoProfileStore(place(tmp_path), hashed_name)
    store.write(writes(2))
    gone = {f"a:{each}": frozenset({f"mail:{each}"}) for each in range(2)}
    found = store.erase([*gone], 100)
    assert {each.fragment_id: each.identifiers for each in found} == gone
    assert store.unfinished() == [FragmentSummary(each, 2, carried, False) for each, carried in gone.items()]
    store.close()


def test_new_keys_whose_answer_was_lost_are_those_that_are_there(
    proxied: tuple[TablesLocation, deque[Fault]],
) -> None:
    where, faults = proxied
    keys = DynamoDataKeys(where)
    keys.get(["a:1"])
    faults.extend([lambda send, body: send(body), lost_answer])
    mine = {f"a:{each}": WrappedKey(1, b"%d" % each) for each in range(5)}
    assert keys.put_absent(mine) == mine
    assert not faults
    keys.close()


KEYS = {"a:1": WrappedKey(1, b"k")}


@pytest.fixture
def key_store(tmp_path: Path) -> Iterator[Callable[[], DynamoDataKeys]]:
    """Opens the same tables as often as asked. The fragment `a:1` has a key, others have none."""
    where = place(tmp_path)
    with ExitStack() as opened:

        def another() -> DynamoDataKeys:
            return opened.enter_context(closing(DynamoDataKeys(where)))

        another().put_absent(KEYS)
        yield another


def test_a_lease_whose_release_was_not_answered_was_not_lost(
    key_store: Callable[[], DynamoDataKeys], monkeypatch: pytest.MonkeyPatch
) -> None:
    losing("batch_execute_statement", monkeypatch)
    keys = key_store()
    for _ in range(2):
        with keys.hold(["a:1", "a:2"]) as held:
            assert held == KEYS, "and is free for the next one"
    assert keys.delete(["a:1", "a:2"]) == 1
    assert keys.get(["a:1"]) == {}


@pytest.mark.parametrize("fragment", ["a:1", "a:2"])
@pytest.mark.parametrize("what", ["hold", "put", "delete"])
def test_a_lease_that_somebody_took_over_and_gave_back_is_reported_as_lost(
    key_store: Callable[[], DynamoDataKeys], monkeypatch: pytest.MonkeyPatch, what: str, fragment: str
) -> None:
    mine, other = key_store(), key_store()
    monkeypatch.setattr(dynamo_leases, "LEASE_SECONDS", -1)
    new = WrappedKey(1, b"new")

    def put() -> object:
        return (
            other.put_absent({fragment: new})
            if fragment not in KEYS
            else other.replace({fragment: (KEYS[fragment], new)})
        )

    def hold() -> None:
        with other.hold([fragment]):
            pass

    meanwhile: dict[str, Callable[[], object]] = {
        "hold": hold,
        "put": put,
        "delete": lambda: other.delete([fragment]),
    }
    with pytest.raises(StoreError, match="held for too long"), mine.hold([fragment]):
        meanwhile[what]()


class RefusingOne:
    """A client of boto3 that takes its time over each page of keys, and refuses the first for good once another one is
    begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self._other = threading.Event()

    def batch_get_item(self, RequestItems: Item, **_: object) -> Any:  # noqa: N803 - boto3's name
        ((table, request),) = RequestItems.items()
        first = request["Keys"][0]["pk"]["S"]
        if first == "0":
            assert self._other.wait(60)
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchGetItem")
        self.begun.append(first)
        self._other.set()
        time.sleep(0.5)
        self.ended.append(first)
        return {"Responses": {table: []}}

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("pages", [2, 10 * THREADS])
def test_no_request_outlives_the_call_that_failed(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What continues writing would do so when its lease is free, under a key that is erased by then."""
    refusing = RefusingOne()
    monkeypatch.setattr(dynamo_client, "connect", lambda *_: refusing)
    client = DynamoClient(TablesLocation("refused", "eu-central-1"))
    with pytest.raises(DynamoRefusedError, match="access denied"):
        client.get("fragments", [{"pk": {"S": str(each)}} for each in range(pages * GET_KEYS)])
    begun = list(refusing.begun)
    assert begun
    assert sorted(refusing.ended) == sorted(begun)
    assert len(begun) <= 2 * THREADS, "none is begun once one was refused"
    time.sleep(0.1)
    assert refusing.begun == begun
    client.close()


def test_throttled_for_too_long_is_a_store_error(
    store: DynamoProfileStore, proxied: tuple[TablesLocation, deque[Fault]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws_connection, "RETRY_SECONDS", 0.2)
    proxied[1].extend([throttled] * 100)
    with pytest.raises(StoreError, match=r"fragments: ProvisionedThroughputExceededException, for 0 s"):
        store.read(["a:1"])
    proxied[1].clear()
    assert store.read(["a:1"]) == {}


def test_a_server_that_is_away_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_connection, "RETRY_SECONDS", 0.2)
    away = TablesLocation("away", "eu-central-1", f"http://127.0.0.1:{free_port()}")
    store = DynamoProfileStore(away, hashed_name)
    with pytest.raises(
        StoreError, match=r"away-fragments: no whole answer from http://127.0.0.1:\d+, is it up\? \(Endpoint"
    ):
        store.read(["a:1"])
    store.close()


def test_who_has_no_time_is_told_sooner() -> None:
    away = TablesLocation("away", "eu-central-1", f"http://127.0.0.1:{free_port()}", retry_seconds=0)
    store = DynamoProfileStore(away, hashed_name)
    with pytest.raises(StoreError, match="for 0 s and all retries"):
        store.read(["a:1"])
    store.close()


def test_tables_that_were_not_made_are_reported_with_the_command(
    proxied: tuple[TablesLocation, deque[Fault]],
) -> None:
    store = DynamoProfileStore(proxied[0]._replace(prefix="never-made"), hashed_name)
    with pytest.raises(StoreError, match=r"never-made-fragments: .*idgraph store create"):
        store.read(["a:1"])
    with pytest.raises(StoreError, match=r"never-made-\w+: .*idgraph store create"):
        store.write(writes(1))
    store.close()
