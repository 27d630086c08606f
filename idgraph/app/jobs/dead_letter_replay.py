"""The job that replays chosen dead letters, as the command line and the profile service start it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from idgraph.app import wiring
from idgraph.app.settings.document import Settings
from idgraph.jobs.replay import Replay
from idgraph.model.dead_letters import DeadLetter, DeadLetters
from idgraph.model.errors import MetadataError
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.metadata.schema_buffer import SchemaSender
from ingestion.spark.workers import WorkerResources


def replay_job(
    settings: Settings,
    resources: WorkerResources,
    snapshot: MetadataSnapshot,
    chosen: Sequence[str],
    removed: Callable[[str], None] = lambda _: None,
) -> Replay:
    """`chosen` are ids of dead letters; `removed` is called with each that is not there any more."""
    return Replay(
        _one_by_one(resources.dead_letters, chosen, removed),
        wiring.worker_plan(settings),
        resources,
        snapshot,
        resources.sealer.open,
        functools.partial(_send, settings),
        len(chosen),
        hashlib.sha256("\n".join(sorted(chosen)).encode()).hexdigest()[:16],
    )


def _one_by_one(
    dead_letters: DeadLetters, ids: Iterable[str], removed: Callable[[str], None]
) -> Iterator[DeadLetter]:
    """Dead letters one by one, because all do not fit in memory."""
    for each in ids:
        if (dead_letter := dead_letters.get(each)) is not None:
            yield dead_letter
        else:
            removed(each)


def _send(settings: Settings, changes: list[SchemaChange]) -> None:
    try:
        with wiring.flow_client(settings) as client:
            SchemaSender(client).send(changes)
    except MetadataError as error:
        raise type(error)(
            f"{error}; dead letters with new attributes stay until the service knows these: replay them later"
        ) from None
