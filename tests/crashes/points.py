"""The points of the code at which a process of the flow is killed, in the order in which a micro-batch comes by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

DYING = Path(__file__).with_name("dying")


class Point(NamedTuple):
    """A point, in words and in the code: `target` is `module:Class.method` or `module:function`. `call` counts in one
    process, so that there is work before and after it."""

    words: str
    role: str
    when: str
    target: str
    call: int = 1

    def environment(self, marker: Path, waits: bool) -> dict[str, str]:
        """What has one process die there: of its own, or `waits` for all to be killed at once."""
        module, _, path = self.target.partition(":")
        owner, _, name = path.rpartition(".")
        death = {
            "module": module,
            "owner": owner,
            "name": name,
            "when": self.when,
            "call": self.call,
            "role": self.role,
            "marker": str(marker),
            "waits": waits,
        }
        path_of_python = f"{DYING}:{DYING.parents[2]}"
        return {"IDGRAPH_TEST_DEATH": json.dumps(death), "PYTHONPATH": path_of_python}


STORE = "sinks.sqlite_profiles:SqliteProfileStore"
LETTERS = "sinks.sqlite_dead_letters:SqliteDeadLetters"

POINTS = (
    Point("the snapshot is pinned", "driver", "after", "ingestion.pins:BatchPins.pin", 2),
    Point("data keys are made", "worker", "after", "transforms.sealing:DataKeys.fetch"),
    Point("dead letters are put", "worker", "after", f"{LETTERS}.put"),
    Point("the first commit", "worker", "before", "ingestion.commit_stage:CommitStage.run"),
    Point("the second write", "worker", "before", f"{STORE}.write", 2),
    Point("rows are written, not committed", "worker", "after", "sinks.sqlite_profiles:_write", 2),
    Point("the store has written", "worker", "after", f"{STORE}.write", 2),
    Point("the index has written", "worker", "after", "sinks.sqlite_index:SqliteProfileIndex.put"),
    Point("the outbox is settled", "worker", "after", f"{STORE}.settle"),
    Point("schema changes go to the journal", "driver", "before", "ingestion.schema_buffer:SchemaBuffer.add"),
    Point("schema changes are in the journal", "driver", "after", "ingestion.schema_buffer:SchemaBuffer.add"),
    Point("dead letters are settled", "driver", "after", f"{LETTERS}.settle_batch"),
    Point("the next micro-batch begins", "driver", "before", "ingestion.flow:Flow._run_batch", 2),
)
