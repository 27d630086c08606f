"""The points of the code at which a process of the flow is killed, in the order in which a micro-batch comes by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

DYING = Path(__file__).with_name("dying")


class Point(NamedTuple):
    """A point, in words and in the code: `target` is `module:Class.method` or `module:function`. `call` counts in one
    process, so that there is work before and after it."""

    words: str
    role: str
    when: str
    target: str
    call: int = 1

    def death(self, marker: Path, waits: bool = False) -> dict[str, Any]:
        """What has one process die there, as `dying/sitecustomize.py` reads it: of its own, or `waits` for all to be
        killed at once."""
        module, _, path = self.target.partition(":")
        owner, _, name = path.rpartition(".")
        return {
            "module": module,
            "owner": owner,
            "name": name,
            "when": self.when,
            "call": self.call,
            "role": self.role,
            "marker": str(marker),
            "waits": waits,
        }

    def reported(self) -> str:
        """In words, with what is before it."""
        return f"{self.when} {self.words}" if self.when == "before" else self.words


def dying(*deaths: Mapping[str, Any]) -> dict[str, str]:
    """The environment of processes that die so, each death once."""
    return {"IDGRAPH_TEST_DEATHS": json.dumps(deaths), "PYTHONPATH": f"{DYING}:{DYING.parents[2]}"}


STORE = "sinks.sqlite.profiles:SqliteProfileStore"
LETTERS = "sinks.sqlite.dead_letters:SqliteDeadLetters"

POINTS = (
    Point("the snapshot is pinned", "driver", "after", "ingestion.spark.sent_snapshots:BatchPins.pin", 2),
    Point("data keys are made", "worker", "after", "transforms.privacy.sealing:DataKeys.fetch"),
    Point("dead letters are put", "worker", "after", f"{LETTERS}.put"),
    Point("the first commit", "worker", "before", "ingestion.stages.commit:CommitStage.run"),
    Point("the second write", "worker", "before", f"{STORE}.write", 2),
    Point("rows are written, not committed", "worker", "after", "sinks.sqlite.profiles:_write", 2),
    Point("the store has written", "worker", "after", f"{STORE}.write", 2),
    Point("the index has written", "projection", "after", "sinks.tantivy.index:TantivyProfileIndex.put"),
    Point("the outbox is settled", "projection", "after", f"{STORE}.settle"),
    Point(
        "schema changes go to the journal",
        "driver",
        "before",
        "ingestion.metadata.schema_buffer:SchemaBuffer.add",
    ),
    Point(
        "schema changes are in the journal",
        "driver",
        "after",
        "ingestion.metadata.schema_buffer:SchemaBuffer.add",
    ),
    Point("dead letters are settled", "driver", "after", f"{LETTERS}.settle_batch"),
    Point("the next micro-batch begins", "driver", "before", "ingestion.spark.query:Flow._run_batch", 2),
    Point(
        "the index has committed, nobody knows of it",
        "projection",
        "after",
        "sinks.tantivy.index:put_into",
    ),
)
