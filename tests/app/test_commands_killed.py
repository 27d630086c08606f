"""`idgraph seal` and `idgraph dead-letters replay` killed (kill -9) behind each of their steps, then retried: what is
there is what one run that nobody disturbed leaves. See docs/crashes.md; `idgraph erase` has a test of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.files import write_atomically
from idgraph.model.events import RawRecord
from idgraph.model.queries import Query
from idgraph.model.snapshots import MetadataSnapshot
from tests.app.conftest import CommandLine
from tests.app.processes import program
from tests.crashes.points import Point, dying
from tests.retail import EXAMPLE, UNDETECTED, Pipeline, durable_keys, persons_of, raw, records, snapshot
from tests.support.renamed_orders import AFTER, BEFORE, later

pytestmark = pytest.mark.long


STORE = "sinks.sqlite.profiles:SqliteProfileStore"
INDEX = "sinks.tantivy.index:TantivyProfileIndex"
LETTERS = "sinks.sqlite.dead_letters:SqliteDeadLetters"


def after(words: str, target: str, call: int = 1) -> Point:
    """A point in a command, which runs in the process that the flow's driver would be."""
    return Point(words, "driver", "after", target, call)


SEALING = (
    after("fragments are joined to those of their new names", f"{STORE}.write"),
    after("the old ones are withdrawn", f"{STORE}.withdraw"),
    after("their documents are gone", f"{INDEX}.erase"),
    after("their data keys are gone", "ingestion.stages.orphaned_keys:OrphanedKeys.erase"),
    after("values are sealed in their places", f"{STORE}.write", 2),
    after("the index is compacted", f"{INDEX}.compact"),
)
REPLAY = (
    after("data keys are made", "transforms.privacy.sealing:DataKeys.fetch"),
    after("the store has written", f"{STORE}.write"),
    after("new dead letters are put", f"{LETTERS}.put"),
    after("dead letters are dropped", f"{LETTERS}.drop", 2),
)


def stored(idgraph: CommandLine, known: MetadataSnapshot, given: Iterable[RawRecord]) -> None:
    """Give events through the stages, as a flow under this snapshot does."""
    settings = idgraph.settings()
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=known)
        for output in pipeline.map_stage().run(given):
            resources.dead_letters.put(output.dead_letters)
            pipeline.commit_stage().run(output.encoded())
        pipeline.data_keys.close()


def left(idgraph: CommandLine) -> tuple[list[Any], set[tuple[str, str]]]:
    """All profiles, revealed, and all dead letters; the index and the outbox must be as they should."""
    with wiring.opened(idgraph.settings()) as resources:
        assert resources.store.outbox() == []
        assert resources.store.withdrawn() == {}
        persons = sorted(person.id for person in persons_of(resources.store))
        assert resources.index.search(Query(), 1000).ids == persons
        dead_letters = {
            (dead_letter.position, str(dead_letter.reason)) for dead_letter in resources.dead_letters.scan()
        }
    return idgraph.json("export", "--reveal", "--provenance"), dead_letters


def undisturbed(idgraph: CommandLine, folder: Path, *words: str) -> tuple[list[Any], set[tuple[str, str]]]:
    """What a copy is left with by the command in one go."""
    shutil.copytree(idgraph.folder, folder)
    other = CommandLine(folder)
    other(*words)
    return left(other)


def kill(idgraph: CommandLine, point: Point, *words: str) -> None:
    """Run the command until it dies at the point."""
    marker = idgraph.folder / "died"
    done = subprocess.run(
        program(idgraph, *words),
        check=False,
        capture_output=True,
        env={**os.environ, **dying(point.death(marker))},
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)
    assert marker.exists()
    marker.unlink()


@pytest.mark.parametrize("point", SEALING, ids=lambda point: point.words)
def test_sealing(point: Point, with_keys: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = with_keys.settings()
    stored(with_keys, BEFORE, [*records(40), later(6), later(7)])
    settings.flow_state().mkdir(parents=True, exist_ok=True)
    kept = {"etag": '"2"', "snapshot": AFTER.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(settings), json.dumps(kept).encode())
    expected = undisturbed(with_keys, tmp_path_factory.mktemp("undisturbed") / "copy", "seal")
    kill(with_keys, point, "seal")
    # What was on its way meanwhile, mapped before it was protected.
    stored(with_keys, BEFORE, [later(6)])
    assert with_keys("seal").exit_code == 0
    assert left(with_keys) == expected
    assert with_keys("seal").stdout == "0 values of 0 profiles sealed\n"


@pytest.mark.parametrize("point", REPLAY, ids=lambda point: point.words)
def test_replay(point: Point, served: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> None:
    stored(served, snapshot(specs=[], defaults=UNDETECTED), [*records(40), raw(b"{", 90)])
    assert served("attributes", "apply", EXAMPLE / "attributes.json").exit_code == 0
    assert served("specs", "apply", *sorted((EXAMPLE / "specs").glob("*.json"))).exit_code == 0
    words = ("dead-letters", "replay", "--all")
    expected = undisturbed(served, tmp_path_factory.mktemp("undisturbed") / "copy", *words)
    assert len(expected[0]) > 1
    assert {reason for _, reason in expected[1]} == {"not_json"}
    kill(served, point, *words)
    assert served(*words).exit_code == 1, "one dead letter stays"
    assert left(served) == expected
