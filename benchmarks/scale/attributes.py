"""The cost of an event as a fragment grows to ten thousand attributes: mapped all at once, and one that changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.flow_run import stored
from benchmarks.pipeline import Pipeline, cpu_seconds, pipeline, wire, without_collector
from benchmarks.sealing_cost import snapshot
from idgraph.model import canonical
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot

SIZES = (10, 100, 1000, 10_000)
MOST_IN_EVENT = 9000
"""Leaves per event, of the 10,000 that one may have."""
ROUNDS = 5


def measure(folder: Path) -> dict[str, Any]:
    """By attributes of the fragment: CPU microseconds of this process."""
    figures = {}
    for count in SIZES:
        with pipeline(folder / str(count), _passing_through()) as stages, without_collector():
            figures[f"{count} attributes"] = _measured(stages, count)
    return figures


def _measured(stages: Pipeline, count: int) -> dict[str, Any]:
    whole = []
    for number, start in enumerate(range(0, count, MOST_IN_EVENT)):
        names = range(start, min(count, start + MOST_IN_EVENT))
        whole.append(_event(f"whole{number}", {f"field{name}": name for name in names}))
    stages.map(whole)  # the paths are known then
    mapping = cpu_seconds(lambda: stages.map(whole), ROUNDS)
    given = list(wire(stages.map(whole)))
    first = cpu_seconds(lambda: stages.commit(given))
    changes = iter([list(wire(stages.map([_event(f"change{n}", {"field3": n})]))) for n in range(ROUNDS)])
    change = cpu_seconds(lambda: stages.commit(next(changes)), ROUNDS)
    (state,) = [fragment.state for fragment in stages.tools.store.scan() if fragment.id.startswith("user_id")]
    reading = cpu_seconds(lambda: stages.tools.store.read(["user_id:1"]), ROUNDS)
    return {
        "map_us_an_attribute": round(1e6 * mapping / count, 2),
        "commit_all_us_an_attribute": round(1e6 * first / count, 2),
        "commit_one_that_changes_us": round(1e6 * change),
        "read_us": round(1e6 * reading),
        "state_bytes_an_attribute": round(len(state) / count),
        "index_bytes_an_attribute": round(stored(stages.settings)["index"] / count),
    }


def _passing_through() -> MetadataSnapshot:
    """The example's, its web site's spec giving every property on."""
    example = snapshot(protected=True)
    (web,) = [spec for spec in example.specs if spec.source == "segment"]
    shift = {
        "operation": "shift",
        "spec": {
            "messageId": "_event.id",
            "timestamp": "_event.ordinal",
            "userId": "identity.userId",
            "properties": {"*": "wide.&"},
        },
    }
    times = {"operation": "modify-overwrite-beta", "spec": {"_event": {"ordinal": "=epochMs"}}}
    content = web.model_dump(mode="json") | {"operations": [shift, times]}
    return example.model_copy(update={"specs": (type(web).model_validate(content),)})


_COUNT = iter(range(10**9))


def _event(name: str, properties: dict[str, int]) -> RawRecord:
    content = {
        "messageId": name,
        "timestamp": f"2024-03-01T{next(_COUNT) // 60:02d}:{next(_COUNT) % 60:02d}:00Z",
        "type": "track",
        "userId": "1",
        "properties": properties,
    }
    return RawRecord("segment", f"file:segment/x.jsonl#{name}", canonical.encode(content))
