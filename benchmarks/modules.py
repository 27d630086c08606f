"""The modules of the product that a record passes, from its file to the index, in this process without Spark's shell.

`python -m benchmarks modules`. A module is passed if it is called for one record in ten at least: what is called once
for a task or a page of the store is not. Native code stands for the modules of its reference.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from benchmarks.product import installed
from benchmarks.workload import clear, events, renamed
from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import Settings
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.spark.sent_snapshots import SentSnapshot, packed
from ingestion.spark.tasks import quick_row_task
from ingestion.spark.worker_process import BatchOrder, compiled, resources
from ingestion.stages.dead_letters import BatchAttempt

SOURCE = "orders"
FEW, MANY = 100, 300
LEAST = 0.1
PRODUCT = Path(__file__).parent.parent
TOO = ("benchmarks", "tests", ".venv")


def measure(folder: Path) -> dict[str, Any]:
    """The modules, with the calls into each for one more record."""
    clear(folder)
    with installed(folder) as (_, settings):
        with closing(metadata_access.metadata_client(settings)) as client:
            answer = client.snapshot(None, 0)
            assert answer is not None
        few, many = _calls(settings, answer.snapshot)
    calls = {name: round((many[name] - few[name]) / (MANY - FEW), 2) for name in many}
    passed = {name: number for name, number in calls.items() if number >= LEAST}
    return {"a_record": len(passed), "a_task": len(many), "calls_for_a_record": dict(sorted(passed.items()))}


def _calls(settings: Settings, snapshot: MetadataSnapshot) -> tuple[Counter[str], Counter[str]]:
    """The calls into each module for few records, and for many of other people."""
    plan = wiring.worker_plan(settings)
    sent = SentSnapshot("modules", SimpleNamespace(value=packed(snapshot)))
    order = BatchOrder(BatchAttempt("main/q/0", "attempt"), sent, is_last=False)
    inbox = settings.sources_by_name()[SOURCE].path  # type: ignore[union-attr]
    given = events(SOURCE)

    def take(shop: int, number: int) -> None:
        file = inbox / f"{shop}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(renamed(SOURCE, event, shop) for event in given[:number]))
        tools = resources(plan)
        list(quick_row_task(plan, order)([[f"file://{file}"]]))
        tools.projection(lambda: compiled(order).attributes.index_rules).sweep()

    # The first task opens stores, and shows the attributes that nobody declared.
    take(1, MANY)
    return _watched(lambda: take(2, FEW)), _watched(lambda: take(3, MANY))


def _watched(work: Callable[[], None]) -> Counter[str]:
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    calls: Counter[str] = Counter()
    for name, number in found.items():
        path = Path(name)
        if path.is_relative_to(PRODUCT) and path.relative_to(PRODUCT).parts[0] not in TOO:
            calls[path.relative_to(PRODUCT).as_posix()] = number
    return calls
