"""What changed since a snapshot: with it the earlier snapshot is the whole one, after any edits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from idgraph.model.identity_rules import SHOP_RULES
from idgraph.model.snapshot_changes import SnapshotChanges
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.web.refusals import GoneError
from metadata_service.storage import snapshots as snapshot_changes
from metadata_service.storage.database import Database
from metadata_service.storage.snapshots import SnapshotCache, changes_since
from tests.metadata_service.conftest import Running
from tests.metadata_service.test_snapshot import discover, read, restore


def changes(client: httpx.Client, etag: str, **params: float) -> httpx.Response:
    return client.get("/v1/snapshot/changes", params={"since": etag, **params})


def followed(client: httpx.Client, known: MetadataSnapshot, etag: str) -> tuple[MetadataSnapshot, str]:
    answer = changes(client, etag)
    assert answer.status_code == 200, answer.text
    found = SnapshotChanges.model_validate_json(answer.content)
    assert (found.since, found.etag) == (etag, answer.headers["ETag"])
    return found.applied_to(known), found.etag


def test_with_what_changed_each_earlier_snapshot_is_the_newest(
    service: Running, spec: dict[str, Any]
) -> None:
    admin = service.admin
    edits: list[Callable[[], object]] = [
        lambda: discover(service.database, "m", "b"),
        lambda: admin.put("/v1/specs/payroll", json=spec | {"status": "active"}),
        lambda: admin.put("/v1/specs/draft", json=spec | {"name": "draft", "source": "other"}),
        lambda: discover(service.database, "b", data_type="array"),
        lambda: admin.put(
            "/v1/attributes/m", json={"path": "m", "data_type": "string", "encryption": "protected"}
        ),
        lambda: admin.put("/v1/specs/payroll", json=spec | {"priority": 3, "status": "active"}),
        lambda: admin.post("/v1/specs/draft/status", json={"status": "active"}),
        lambda: admin.put("/v1/identity-rules", json={"hub_limit": 9}),
        lambda: discover(service.database, "a", "z"),
        lambda: admin.post("/v1/specs/payroll/status", json={"status": "active", "version": 1}),
        lambda: admin.put(
            "/v1/discovery-defaults", json={"classification": "restricted", "encryption": "protected"}
        ),
        lambda: admin.put("/v1/identity-rules", json=SHOP_RULES),
        lambda: admin.post("/v1/specs/payroll/status", json={"status": "retired"}),
    ]
    seen = [read(service.reader)]
    for edit in edits:
        edit()
        seen.append(read(service.reader))
        for known in seen[:-1]:
            if known[1] != seen[-1][1]:
                made, etag = followed(service.reader, *known)
                assert (made, etag) == seen[-1]
                assert made.model_dump_json() == seen[-1][0].model_dump_json()
    assert len({etag for _, etag in seen}) == len(edits) + 1


def test_unchanged_is_304_also_after_a_wait(service: Running) -> None:
    _, etag = read(service.reader)
    started = time.monotonic()
    for params in ({}, {"wait": 0.3}):
        answer = changes(service.reader, etag, **params)
        assert (answer.status_code, answer.headers["ETag"]) == (304, etag)
    assert time.monotonic() - started > 0.25


def test_a_write_wakes_who_waits(service: Running) -> None:
    known = read(service.reader)
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(changes(service.reader, known[1], wait=30)))
    waiting.start()
    time.sleep(0.3)
    discover(service.database, "a")
    waiting.join(60)
    found = SnapshotChanges.model_validate_json(answers[0].content)
    assert [each.path for each in found.attributes] == ["a"]
    assert found.applied_to(known[0]) == read(service.reader)[0]


@pytest.mark.parametrize(
    "since", ['"0-0123456789abcdef"', '"7-x"', "", "x", '"-1-2"', '"99999999999999999999-a"', "²-1"]
)
def test_of_a_snapshot_that_this_database_never_had_only_the_whole_is_reported(
    service: Running, since: str
) -> None:
    answer = changes(service.reader, since, wait=30)
    assert answer.status_code == 410
    assert answer.json()["type"] == "urn:idgraph:problem:unknownhistory"


def test_a_restored_backup_reports_nothing_of_what_it_no_longer_has(database: Database) -> None:
    discover(database, "a")
    kept = SnapshotCache(database).current()
    discover(database, "only after the backup")
    lost = SnapshotCache(database).current()
    restore(database, version=1)
    discover(database, "other")
    with pytest.raises(GoneError):
        changes_since(database, lost.revision.etag)
    found = SnapshotChanges.model_validate_json(changes_since(database, kept.revision.etag).body)
    whole = MetadataSnapshot.model_validate_json(SnapshotCache(database).current().body)
    assert found.applied_to(MetadataSnapshot.model_validate_json(kept.body)) == whole


def test_what_another_process_wrote_is_reported_as_well(
    database: Database, open_another: Callable[[], Database]
) -> None:
    before = SnapshotCache(database).current()
    discover(open_another(), "a")
    found = SnapshotChanges.model_validate_json(changes_since(database, before.revision.etag).body)
    assert [each.path for each in found.attributes] == ["a"]


def test_of_too_many_changes_the_whole_is_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_changes, "MOST_CHANGES", 2)
    before = SnapshotCache(database).current().revision.etag
    discover(database, "a", "b")
    assert changes_since(database, before)
    discover(database, "c")
    with pytest.raises(GoneError, match="too much has changed"):
        changes_since(database, before)
