"""The stream of the fragments table on DynamoDB Local, and what it may answer besides."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.retail import persons_of

pytest.importorskip("boto3", reason="boto3 is not installed: pip install -e .[dynamodb]")

from idgraph.model.errors import ProfileIndexError, StoreError
from idgraph.model.index import IndexDocument, ProfileIndex
from idgraph.model.queries import Query
from idgraph.model.store import ProfileStore
from idgraph.projection.documents import documents_of
from idgraph.projection.projection import Projection
from idgraph.projection.stream_following import FollowProgress, StreamFollowing
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import TablesLocation
from sinks.dynamodb.profiles import DynamoProfileStore
from sinks.dynamodb.schema import FRAGMENTS
from sinks.dynamodb.streams import DynamoStream
from sinks.tantivy.index import TantivyProfileIndex
from tests.contracts.implementations import hashed_name
from tests.contracts.processes import killed_after
from tests.projecting import project, sweep
from tests.servers.dynamodb import place
from tests.servers.faulty_proxy import Answer, Fault, cut, faulty_proxy
from tests.support.indexed_stores import allowing, write

pytestmark = pytest.mark.long


POLICY = allowing("x")


class Followed:
    """A store that reports by a stream, an index that the stream feeds, and one that flows feed."""

    def __init__(self, folder: Path, tables: TablesLocation) -> None:
        self.folder = folder
        self.tables = tables
        self.store: ProfileStore = DynamoProfileStore(tables, hashed_name)
        self.index: ProfileIndex = TantivyProfileIndex(folder / "streamed", hashed_name)
        self.stream = DynamoStream(tables)

    def following(self, index: ProfileIndex | None = None) -> StreamFollowing:
        projection = Projection(self.store, index or self.index, lambda: POLICY.rules)
        return StreamFollowing(projection, self.stream)

    def follow(self, index: ProfileIndex | None = None) -> FollowProgress:
        """Until all is reported and nothing waits."""
        work = self.following(index)
        for progress in work.run(threading.Event()):
            if progress.is_idle and work.is_drained(progress):
                return progress
        raise AssertionError

    def close(self) -> None:
        for each in (self.store, self.index, self.stream):
            each.close()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    opened = Followed(tmp_path, place(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Followed, deque[Fault]]]:
    real = place(tmp_path)
    assert real.endpoint is not None
    with faulty_proxy(real.endpoint) as (url, faults):
        opened = Followed(tmp_path, real)
        opened.stream.close()
        opened.stream = DynamoStream(real._replace(endpoint=url))
        yield opened, faults
        opened.close()


def some_history(followed: Followed) -> None:
    """New ones, changed ones, one that is in the index already, one that is erased, one that came back."""
    store = followed.store
    for number in range(12):
        write(store, f"p:{number:02}", number)
    for number in range(0, 12, 3):
        write(store, f"p:{number:02}", f"changed{number}")
    project(store, followed.index, POLICY.rules, [write(store, "p:01", "settled").fragment_id])
    store.erase(["p:02", "p:03"], 1)
    store.finish(["p:02", "p:03"])
    write(store, "p:03", "back")


def same(index: ProfileIndex, store: ProfileStore, folder: Path) -> None:
    """The index is what the side output of a flow makes of the store."""
    by_flow = TantivyProfileIndex(folder / "by-flow", hashed_name)
    documents = documents_of(persons_of(store), POLICY.rules).documents
    by_flow.put(documents)
    assert index.search(Query(), 1000).ids == by_flow.search(Query(), 1000).ids
    assert index.compare(documents) == by_flow.compare(documents)
    by_flow.close()


def test_it_reports_every_write_until_the_index_has_it(followed: Followed) -> None:
    some_history(followed)
    progress = followed.follow()
    assert progress.indexed >= 11
    assert (progress.refused, progress.trimmed) == (0, 0)
    same(followed.index, followed.store, followed.folder)
    assert followed.store.outbox() == []
    # What it settled is reported too, and is nothing to index.
    again = followed.follow()
    assert again.indexed == 0
    write(followed.store, "p:05", "more")
    assert followed.follow().indexed == 1
    same(followed.index, followed.store, followed.folder)


def test_a_change_is_reported_by_the_stream_before_the_outbox_is_swept(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = followed.following().run(threading.Event())
    next(steps)
    sweep = Projection.sweep
    monkeypatch.setattr(Projection, "sweep", lambda *_: pytest.fail("swept"))
    write(followed.store, "p:06", "meanwhile")
    progress = next(steps)
    while not progress.indexed:
        progress = next(steps)
    assert (progress.reported, progress.indexed) == (1, 1)
    assert followed.index.search(Query(), 100).ids == ["p:06"]
    monkeypatch.setattr(Projection, "sweep", sweep)


class _Picky:
    """Refuses one id for a while, and everything while it is away."""

    def __init__(self, index: ProfileIndex) -> None:
        self._index = index
        self.refused = {"p:04"}
        self.away = 0

    def put(self, documents: list[IndexDocument]) -> dict[str, str]:
        if self.away:
            self.away -= 1
            raise ProfileIndexError("away")
        self._index.put([each for each in documents if each.id not in self.refused])
        return {each.id: "no" for each in documents if each.id in self.refused}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


def test_what_the_index_refuses_stays_in_the_outbox_alone(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.projection.stream_following.RETRY_SECONDS", 0.01)
    some_history(followed)
    picky = _Picky(followed.index)
    picky.away = 2
    progress = followed.follow(picky)  # type: ignore[arg-type]
    assert progress.refused >= 1
    assert [each.fragment_id for each in followed.store.outbox()] == ["p:04"]
    assert "p:04" not in followed.index.search(Query(), 100).ids
    picky.refused = set()
    followed.follow(picky)  # type: ignore[arg-type]
    assert followed.store.outbox() == []
    same(followed.index, followed.store, followed.folder)


def of_operation(key: str, fault: Fault) -> Fault:
    """A fault of the next request that has this key; others are passed on, and it waits."""
    pending = [fault]

    def answer(send: Callable[[bytes], Answer], body: bytes) -> Answer | None:
        if pending and key in json.loads(body):
            return pending.pop()(send, body)
        return send(body)

    return answer


def refused_as(code: str) -> Fault:
    def answer(_: Callable[[bytes], Answer], __: bytes) -> Answer:
        kind = f"com.amazonaws.dynamodb.v20120810#{code}"
        return Answer(400, json.dumps({"__type": kind, "message": "no"}).encode())

    return answer


@pytest.mark.parametrize("fault", [refused_as("ExpiredIteratorException"), cut])
def test_an_iterator_that_expired_and_what_passes_are_tried_again(
    proxied: tuple[Followed, deque[Fault]], fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.projection.stream_following.RETRY_SECONDS", 0.01)
    followed, faults = proxied
    some_history(followed)
    once = of_operation("ShardIterator", fault)
    work = followed.following()
    steps = work.run(threading.Event())
    next(steps)
    write(followed.store, "p:06", "later")
    # The iterator that it holds by now.
    faults.extend([once] * 6)
    for progress in steps:
        if progress.is_idle and work.is_drained(progress):
            break
    assert progress.trimmed == 0
    same(followed.index, followed.store, followed.folder)


def test_what_was_dropped_before_it_was_read_is_reported_and_taken_from_the_outbox(
    proxied: tuple[Followed, deque[Fault]], caplog: pytest.LogCaptureFixture
) -> None:
    followed, faults = proxied
    some_history(followed)
    faults.extend([of_operation("ShardId", refused_as("TrimmedDataAccessException"))] * 4)
    progress = followed.follow()
    assert progress.trimmed == 1
    assert "its stream has dropped entries that were not read yet" in caplog.text
    assert "`idgraph reindex`" in caplog.text
    same(followed.index, followed.store, followed.folder)


class _Shards:
    """Answers of a stream whose shards split and end, as DynamoDB Local's do not."""

    def __init__(self) -> None:
        self.shards: dict[str, list[str]] = {"open": [], "closed": ["p:old"]}
        self.closed = {"closed"}
        self.lists = 0

    def call(self, operation: str, _table: str, **asked: Any) -> dict[str, Any]:
        if operation == "describe_stream":
            self.lists += 1
            ended = {each: {"EndingSequenceNumber": "1"} for each in self.closed}
            found = [{"ShardId": each, "SequenceNumberRange": ended.get(each, {})} for each in self.shards]
            return {"StreamDescription": {"Shards": found}}
        if operation == "get_shard_iterator":
            name = asked["ShardId"]
            start = len(self.shards[name]) if asked["ShardIteratorType"] == "LATEST" else 0
            return {"ShardIterator": f"{name}/{start}"}
        name, _, start = asked["ShardIterator"].partition("/")
        page = self.shards[name][int(start) :]
        records = [
            {"dynamodb": {"NewImage": {"fragment": {"S": each}, "waiting": {"N": "1"}}}} for each in page
        ]
        ends = {} if name in self.closed else {"NextShardIterator": f"{name}/{len(self.shards[name])}"}
        return {"Records": records, **ends}

    def close(self) -> None:
        """Nothing is open."""


def test_children_of_a_shard_that_ended_are_read_from_their_beginning(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, answers = followed.stream, _Shards()
    assert stream.name
    stream._streams.close()
    monkeypatch.setattr(stream, "_streams", answers)
    assert stream.changed() == []
    answers.shards["open"] += ["p:1", "p:2", "p:1"]
    assert stream.changed() == ["p:1", "p:2"]
    answers.shards |= {"left": ["p:3"], "right": ["p:4"]}
    answers.shards["open"].append("p:5")
    answers.closed.add("open")
    assert (stream.changed(), answers.lists) == (["p:5"], 1)
    assert (stream.changed(), answers.lists, stream.shards) == (["p:3", "p:4"], 2, 2)
    assert (stream.changed(), answers.lists) == ([], 2)
    monkeypatch.setattr("sinks.dynamodb.streams.SHARDS_SECONDS", 0.0)
    stream.changed()
    assert answers.lists == 3


def test_a_table_without_a_stream_is_reported(tmp_path: Path) -> None:
    tables = place(tmp_path)
    client = DynamoClient(tables)
    table = client.table(FRAGMENTS)
    client.call("update_table", table, TableName=table, StreamSpecification={"StreamEnabled": False})
    client.close()
    stream = DynamoStream(tables)
    with pytest.raises(StoreError, match="has no stream of new images"):
        assert stream.name
    stream.close()


_FOLLOW = """
import os, sys, threading
from pathlib import Path
from sinks.dynamodb.connection import TablesLocation
from tests.sinks.test_dynamo_streams import Followed
tables = TablesLocation(sys.argv[2], "eu-central-1", os.environ["TEST_DYNAMODB_URL"])
followed = Followed(Path(sys.argv[1]), tables)
for progress in followed.following().run(threading.Event()):
    print(progress.reported, flush=True)
"""


@pytest.mark.process
def test_killed_again_and_again_it_gives_the_same_index(followed: Followed) -> None:
    assert os.environ["TEST_DYNAMODB_URL"]
    stop = threading.Event()
    failures: list[BaseException] = []

    def flow() -> None:
        try:
            for number in range(100_000):
                # Not faster: the machine has others to serve.
                if stop.wait(0.01):
                    return
                write(followed.store, f"p:{number % 40:02}", number)
                if number % 17 == 0:
                    (gone,) = followed.store.erase([f"p:{number % 40:02}"], 1)
                    followed.index.erase({gone.fragment_id: gone.version})
                    followed.store.finish([gone.fragment_id])
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=flow)
    writer.start()
    try:
        for pause in (0.0, 0.07):
            with killed_after(_FOLLOW, followed.folder, followed.tables.prefix, lines=2, pause=pause):
                pass
    finally:
        stop.set()
        writer.join()
    assert failures == []
    followed.follow()
    same(followed.index, followed.store, followed.folder)
    assert sweep(followed.store, followed.index, POLICY.rules) == 0
