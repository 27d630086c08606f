"""The snapshot: what is in it, and how soon a waiting reader has it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from idgraph.model.attributes import Catalogue
from idgraph.model.snapshots import MetadataSnapshot
from metadata_service.api import service as service_module
from metadata_service.api.service import CHANGES_AT_ONCE, ChangeWatch
from metadata_service.attributes.discovery import apply_schema_changes
from metadata_service.storage.database import Database, open_database
from metadata_service.storage.sessions import SignInSessions
from metadata_service.storage.snapshots import SnapshotCache
from metadata_service.storage.tokens import Role, revoke_token
from tests.metadata_service.conftest import Running
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.test_proposals import change, patched
from tests.metadata_service.test_spec_approval import BOB, decide
from tests.tokens import give_token

pytestmark = pytest.mark.slow


def discover(database: Database, *paths: str, data_type: str = "string") -> None:
    changes = [{"path": path, "data_type": data_type, "source": "s", "first_event": "f"} for path in paths]
    with database.write("pipeline") as edit:
        apply_schema_changes(edit, changes)


def read(client: httpx.Client) -> tuple[MetadataSnapshot, str]:
    answer = client.get("/v1/snapshot")
    assert answer.status_code == 200
    return MetadataSnapshot.model_validate_json(answer.content), answer.headers["ETag"]


class Waiting:
    """A long poll in progress in a thread."""

    def __init__(self, client: httpx.Client, etag: str, seconds: float, place: str = "/v1/snapshot") -> None:
        def poll() -> None:
            self.answer = client.get(place, params={"wait": seconds}, headers={"If-None-Match": etag})
            self.at = time.monotonic()

        self._thread = threading.Thread(target=poll)
        self._thread.start()
        time.sleep(0.3)

    def done(self) -> tuple[int, float]:
        self._thread.join()
        return self.answer.status_code, self.at


def test_an_empty_catalogue(service: Running) -> None:
    snapshot, etag = read(service.reader)
    assert snapshot == MetadataSnapshot(version=0)
    assert etag.startswith('"0-')


def test_it_is_what_was_stored(service: Running, spec: dict[str, Any]) -> None:
    service.admin.put("/v1/specs/payroll", json=spec | {"status": "active"})
    service.admin.put("/v1/specs/draft", json=spec | {"name": "draft"})
    discover(service.database, "b", "a")
    snapshot, _ = read(service.reader)
    assert (snapshot.version, service.database.revision().version) == (2, 3)
    assert [str(found.ref) for found in snapshot.specs] == ["payroll@1"]
    assert snapshot.specs[0].operations == spec["operations"]
    assert snapshot.attributes == ()
    assert paths(service.reader) == ["a", "b"]
    declare(service, "b")
    snapshot, _ = read(service.reader)
    assert (snapshot.version, [found.path for found in snapshot.attributes]) == (4, ["b"])
    assert paths(service.reader) == ["a", "b"]


def paths(client: httpx.Client) -> list[str]:
    """Those of the catalogue."""
    return [each["path"] for each in client.get("/v1/catalogue").json()["attributes"]]


def declare(service: Running, path: str) -> None:
    service.admin.put(f"/v1/attributes/{path}", json={"path": path, "data_type": "string"}).raise_for_status()


@pytest.mark.parametrize(
    ("defaults", "is_in"),
    [({}, False), ({"authorization_level": 20}, True), ({"encryption": "protected"}, True)],
)
def test_a_discovered_attribute_is_in_it_where_it_says_something_of_others(
    service: Running, defaults: dict[str, Any], is_in: bool
) -> None:
    declare(service, "z")
    discover(service.database, "before")
    if defaults:
        service.admin.put("/v1/discovery-defaults", json=defaults).raise_for_status()
    discover(service.database, "a")
    known = [found.path for found in read(service.reader)[0].attributes]
    assert known == (["a", "before", "z"] if is_in else ["z"])
    assert paths(service.reader) == ["a", "before", "z"]


def test_what_detection_seals_is_in_it(service: Running) -> None:
    _, etag = read(service.reader)
    patched(service, change())
    snapshot, newer = read(service.reader)
    assert newer != etag
    assert [(found.path, found.sealed_for_review) for found in snapshot.attributes] == [("a.b", True)]


def test_a_path_with_a_key_that_looks_sensitive_is_in_it(service: Running) -> None:
    """It was discovered before detection was on: flows would refuse its events from then on."""
    discover(service.database, r"seen.ann@example\.com.at", "seen.by")
    assert [each.path for each in read(service.reader)[0].attributes] == [r"seen.ann@example\.com.at"]


def test_discovery_wakes_no_flow(service: Running) -> None:
    declare(service, "first")
    _, etag = read(service.reader)
    waiting = Waiting(service.reader, etag, 2)
    discover(service.database, "second")
    assert waiting.done()[0] == 304
    assert read(service.reader)[1] == etag


def test_built_step_by_step_or_at_once_it_is_the_same(
    database: Database, open_another: Callable[[], Database]
) -> None:
    cache = SnapshotCache(database)
    other = open_another()
    for writer, paths in ((database, ("m", "b")), (other, ("a", "z")), (database, ("k",))):
        discover(writer, *paths)
        cache.current()
        cache.catalogue()
    discover(other, "m", "k", data_type="array")
    for read_whole in (SnapshotCache.current, SnapshotCache.catalogue):
        assert read_whole(cache) == read_whole(SnapshotCache(database))
        assert read_whole(cache) is read_whole(cache)


def test_a_restored_backup_is_read_anew(database: Database) -> None:
    cache = SnapshotCache(database)
    discover(database, "a")
    discover(database, "only after the backup")
    before = cache.catalogue()
    restore(database, version=1)
    discover(database, "other")
    after = cache.catalogue()
    assert after.revision.version == before.revision.version == 2
    assert after.revision != before.revision
    assert [found.path for found in Catalogue.model_validate_json(after.body).attributes] == ["a", "other"]


def restore(database: Database, version: int) -> None:
    tables = {"attribute_versions": "snapshot_version", "changes": "snapshot_version"}
    tables |= {"history": "version", "snapshots": "version"}
    with database.engine.begin() as connection:
        connection.execute(text("DELETE FROM attributes WHERE path <> 'a'"))
        for table, column in tables.items():
            on = f" ON {table}" if database.engine.dialect.name == "postgresql" else ""
            connection.execute(text(f"DROP TRIGGER {table}_delete{on}"))
            connection.execute(text(f"DELETE FROM {table} WHERE {column} > {version}"))


def test_a_database_made_anew_has_other_etags(service: Running, tmp_path: Any) -> None:
    other = open_database(f"sqlite:///{tmp_path}/other.db")
    assert other.revision().version == service.database.revision().version
    assert other.revision() != service.database.revision()
    other.close()


def test_unchanged_is_304_at_once(service: Running) -> None:
    _, etag = read(service.reader)
    for header in (etag, f'W/{etag}, "x"', "*"):
        answer = service.reader.get("/v1/snapshot", headers={"If-None-Match": header})
        assert (answer.status_code, answer.headers["ETag"]) == (304, etag)


def test_waiting_ends_with_304(service: Running) -> None:
    _, etag = read(service.reader)
    start = time.monotonic()
    status, at = Waiting(service.reader, etag, 0.5).done()
    assert status == 304
    assert 0.45 < at - start < 30


def test_who_has_an_old_etag_or_none_does_not_wait(service: Running) -> None:
    for headers in ({}, {"If-None-Match": '"0-old"'}):
        answer = service.reader.get("/v1/snapshot", params={"wait": 60}, headers=headers)
        assert answer.status_code == 200


def test_the_wait_is_bounded(service: Running) -> None:
    assert service.reader.get("/v1/snapshot", params={"wait": 61}).status_code == 422
    assert service.reader.get("/v1/snapshot", params={"wait": "nan"}).status_code == 422


def test_a_write_wakes_all_who_wait(service: Running) -> None:
    _, etag = read(service.reader)
    waiting = [Waiting(client, etag, 30) for client in (service.reader, service.admin)]
    declare(service, "a")
    written = time.monotonic()
    for each in waiting:
        status, at = each.done()
        assert status == 200
        assert at - written < 25
    assert [found["path"] for found in waiting[0].answer.json()["attributes"]] == ["a"]


def test_a_write_of_another_process_wakes_too(service: Running, open_another: Callable[[], Database]) -> None:
    other = open_another()
    for path in ("a", "b"):  # twice: the watch must start again after it went to sleep
        etag = service.reader.get("/v1/catalogue").headers["ETag"]
        waiting = Waiting(service.reader, etag, 30, "/v1/catalogue")
        discover(other, path)
        written = time.monotonic()
        status, at = waiting.done()
        assert status == 200
        assert at - written < 25


def test_a_reader_of_the_callers_is_woken_by_a_new_token_a_revoked_one_and_a_session(
    service: Running, open_another: Callable[[], Database]
) -> None:
    def names() -> set[str]:
        answer = service.admin.get("/v1/callers")
        etags.append(answer.headers["ETag"])
        return {each["name"] for each in answer.json()["callers"]}

    def wait_for(write: Callable[[], object]) -> set[str]:
        waiting = Waiting(service.admin, etags[-1], 30, "/v1/callers")
        write()
        written = time.monotonic()
        status, at = waiting.done()
        assert status == 200
        assert at - written < 25
        return names()

    etags: list[str] = []
    before, other = names(), open_another()
    token = ""

    def make() -> None:
        nonlocal token
        token = create_token(service.database, "ann", Role.VIEWER)

    assert wait_for(make) == before | {"ann"}
    assert wait_for(lambda: SignInSessions(other).begin(token))
    assert len(service.admin.get("/v1/callers").json()["callers"]) == len(before) + 2
    assert wait_for(lambda: revoke_token(service.database, "ann")) == before
    unchanged = {"If-None-Match": etags[-1]}
    assert service.admin.get("/v1/callers", params={"wait": 0.1}, headers=unchanged).status_code == 304


def test_many_wait_without_threads_or_connections(service: Running) -> None:
    _, etag = read(service.reader)
    headers = dict(service.reader.headers) | {"If-None-Match": etag}

    async def wait_all() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=service.url, headers=headers, limits=limits, timeout=60
        ) as client:
            waiting = [
                asyncio.create_task(client.get("/v1/snapshot", params={"wait": 30})) for _ in range(120)
            ]
            await asyncio.sleep(1.5)
            threads = threading.active_count()
            assert (await client.get("/v1/specs")).status_code == 200, "others are still served"
            await asyncio.to_thread(declare, service, "a")
            answers = await asyncio.gather(*waiting)
            assert threads < 60
            return [answer.status_code for answer in answers]

    assert asyncio.run(wait_all()) == [200] * 120


def test_a_failing_read_does_not_end_the_watch() -> None:
    answers: list[str | Exception] = ["1", OSError("away"), "1", "2"]

    def read_next() -> str:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def wait() -> float:
        start = time.monotonic()
        await ChangeWatch(read_next, 0.01).wait("1", 120)
        return time.monotonic() - start

    assert asyncio.run(wait()) < 60


def test_a_closed_watch_lets_go() -> None:
    async def wait() -> None:
        watch = ChangeWatch(lambda: "1", 10)
        waiting = asyncio.create_task(watch.wait("1", 60))
        await asyncio.sleep(0.05)
        watch.close()
        await asyncio.wait_for(waiting, 30)
        await asyncio.wait_for(watch.wait("1", 60), 30)
        watch.poke()

    asyncio.run(wait())


def test_what_was_read_before_somebody_waits_does_not_wake_them() -> None:
    """A reader may know more than the watch saw last."""
    newest = "1"

    async def wait() -> None:
        nonlocal newest
        watch = ChangeWatch(lambda: newest, 60)
        first = asyncio.create_task(watch.wait("0", 60))
        await asyncio.wait_for(first, 30)
        newest = "2"
        second = asyncio.create_task(watch.wait("2", 60))
        await asyncio.sleep(0.2)
        assert not second.done()
        watch.poke()
        await asyncio.sleep(0.2)
        assert not second.done()
        watch.close()
        await second

    asyncio.run(wait())


def test_a_purged_path_leaves_the_catalogue(service: Running) -> None:
    discover(service.database, "kept", "noise.a")
    cache = SnapshotCache(service.database)
    assert b"noise.a" in cache.catalogue().body
    purge = {"prefix": "noise", "dry_run": False}
    service.admin.post("/v1/attribute-purges?reason=noise", json=purge).raise_for_status()
    assert b"noise.a" not in cache.catalogue().body


def test_a_change_that_nobody_waited_for_delays_no_later_one() -> None:
    newest = "1"

    async def wait() -> float:
        nonlocal newest
        watch = ChangeWatch(lambda: newest, 0.01)
        with suppress(TimeoutError):
            await asyncio.wait_for(watch.wait("1", 60), 0.1)
        newest = "2"
        waiting = asyncio.create_task(watch.wait("2", 60))
        await asyncio.sleep(0.1)
        before = watch._turn
        newest = "3"
        await waiting
        return before

    assert asyncio.run(wait()) == 0, "no turn was taken"


def test_a_few_changes_in_a_row_wake_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "TURN_SECONDS", 3600.0)
    newest = 0

    async def wait() -> None:
        nonlocal newest
        watch = ChangeWatch(lambda: str(newest), 3600)
        for _ in range(CHANGES_AT_ONCE):
            waiting = asyncio.create_task(watch.wait(str(newest), 3600))
            await asyncio.sleep(0.05)
            newest += 1
            watch.poke()
            await asyncio.wait_for(waiting, 30)
        waiting = asyncio.create_task(watch.wait(str(newest), 3600))
        await asyncio.sleep(0.05)
        newest += 1
        watch.poke()
        await asyncio.sleep(0.2)
        assert not waiting.done(), "under steady change they are woken in turns"
        waiting.cancel()

    asyncio.run(wait())


def test_steady_discovery_delays_no_edit(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "TURN_SECONDS", 3600.0)
    _, etag = read(service.reader)
    waiting = Waiting(service.reader, etag, 30)
    for number in range(CHANGES_AT_ONCE + 2):
        discover(service.database, f"found{number}")
        time.sleep(0.05)
    declare(service, "declared")
    written = time.monotonic()
    status, at = waiting.done()
    assert status == 200
    assert at - written < 25


def test_a_discovered_path_whose_key_may_be_a_value_stays_in_the_snapshot(service: Running) -> None:
    document = {
        "name": "tags",
        "source": "tags",
        "event_type": "*",
        "id": "_event.id",
        "identifiers": [{"type": "user_id", "path": "user", "primary": True}],
        "operations": [
            {"operation": "shift", "spec": {"id": "_event.id", "user": "user", "tag": "tags.@(1,tag)"}}
        ],
    }
    discover(service.database, "tags.gold", "other")
    assert read(service.reader)[0].attributes == ()
    answer = service.admin.put("/v1/specs/tags", json=document | {"status": "active"})
    assert answer.status_code == 202, "a second person decides on keys of values"
    give_token(service.database, "bob", Role.ADMIN, BOB)
    assert decide(service, answer.json()["id"]).is_success
    snapshot, _ = read(service.reader)
    assert [each.path for each in snapshot.attributes if each.path.startswith("tags")] == ["tags.gold"]
