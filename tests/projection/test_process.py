"""The projection in a process of its own: what it does, and what is left when it dies."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from idgraph.app import wiring
from idgraph.app.settings.document import load
from idgraph.model.errors import ProfileIndexError
from idgraph.model.queries import Query
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.projection.process import ProjectionProcess
from idgraph.projection.projection import overtaken_mark
from idgraph.projection.runner import ProjectionRunner
from ingestion.spark.workers import WorkerResources
from sinks.keyring.provider import KeyringFile
from tests.installation import Installation, Shop
from tests.support.indexed_stores import write
from tests.support.patience import eventually

pytestmark = [pytest.mark.process]


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    KeyringFile.create(tmp_path / "keyring.json")
    return Installation(tmp_path / "shop", Shop("http://127.0.0.1:9", "none", tmp_path / "keyring.json"))


@pytest.fixture
def resources(installation: Installation) -> Iterator[WorkerResources]:
    settings = load(installation.config)
    wiring.prepare_directory(settings)
    with wiring.opened(settings) as opened:
        yield opened


@pytest.fixture
def snapshots() -> list[PinnedSnapshot]:
    """The last one is the newest."""
    return [PinnedSnapshot("1", MetadataSnapshot(version=1))]


@pytest.fixture
def elsewhere(installation: Installation, snapshots: list[PinnedSnapshot]) -> Iterator[ProjectionProcess]:
    settings = wiring.worker_plan(load(installation.config)).settings
    with closing(ProjectionProcess("idgraph.app.projecting", settings, lambda: snapshots[-1])) as process:
        yield process


def pid(process: ProjectionProcess) -> int:
    assert process._running is not None
    return process._running[0].pid


def test_one_that_is_killed_at_any_moment_is_started_again(
    resources: WorkerResources, elsewhere: ProjectionProcess
) -> None:
    for number in range(30):
        write(resources.store, f"p:{number}", number)
    assert elsewhere.waiting(1000) == 30
    first = pid(elsewhere)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ProfileIndexError, match="ended with code -9"):
        elsewhere.sweep(60.0)
    with elsewhere.many() as is_wanted:
        assert elsewhere.sweep(60.0).projected == 30
        assert not is_wanted()
    assert pid(elsewhere) != first
    assert (resources.store.outbox(), resources.index.count(Query())) == ([], 30)
    os.kill(pid(elsewhere), signal.SIGTERM)
    assert elsewhere.waiting(1000) == 0, "the driver ends it"


def test_it_sweeps_beside_the_flow_and_ends_with_it(
    resources: WorkerResources, elsewhere: ProjectionProcess
) -> None:
    with ProjectionRunner(elsewhere) as runner:
        write(resources.store, "p:1", 1)
        runner.wake()
        eventually(lambda: not resources.store.outbox() and runner.lag_seconds() == 0.0)
        ended = pid(elsewhere)
        write(resources.store, "p:2", 1)
    assert (resources.store.outbox(), resources.index.count(Query())) == ([], 2)
    elsewhere.close()
    assert not Path(f"/proc/{ended}").exists()


def test_its_rules_are_those_of_the_newest_snapshot_and_what_it_logs_is_logged_here(
    resources: WorkerResources,
    elsewhere: ProjectionProcess,
    snapshots: list[PinnedSnapshot],
    caplog: pytest.LogCaptureFixture,
) -> None:
    resources.store.remember(overtaken_mark(0))
    write(resources.store, "p:1", 1)
    with caplog.at_level(logging.WARNING):
        assert elsewhere.sweep(60.0).postponed == 1
    assert [(each.name, each.levelname) for each in caplog.records] == [
        ("idgraph.projection.projection", "WARNING")
    ]
    assert "profiles follow identity rules newer than 0" in caplog.text
    snapshots.append(PinnedSnapshot("2", MetadataSnapshot(version=2, identity_rules_version=1)))
    assert elsewhere.sweep(60.0).left() == 0
    assert resources.store.outbox() == []


def test_an_index_that_fails_is_reported_as_in_this_process(
    resources: WorkerResources, elsewhere: ProjectionProcess, installation: Installation
) -> None:
    write(resources.store, "p:1", 1)
    folder = installation.folder / ".idgraph" / "index"
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("no folder")
    with pytest.raises(ProfileIndexError, match=r"index: .*exists"), elsewhere.many():
        pass
    folder.unlink()
    assert elsewhere.sweep(60.0).projected == 1
