"""The cost of detection per event, and its certainty.

CPU microseconds of the map stage's schema diff with detection off and on: on the retail data, whose attributes
are all declared, and on the security data, where nearly none is. The scores are those of the labelled sample.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.workload import events
from idgraph.model.attributes import AttributeMetadata, AttributeStatus
from idgraph.model.fragments import Origin
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from idgraph.model.stamps import SpecRef, Stamp
from tests.transforms.schema.detection.scores import Judge, by_both, by_name, by_value, labelled, scores
from transforms.schema.diff import AttributeTree

SECURITY = Path(__file__).resolve().parents[1] / "examples" / "security" / "data" / "audit"
ROUNDS = 5
ORIGIN = Origin(Stamp(0, 1, "bench", "1"), SpecRef("bench", 1))


def measure() -> dict[str, Any]:
    """Costs and scores."""
    retail = [event for source in ("segment", "orders") for event in events(source)[:3000]]
    security = [
        json.loads(line)["event"]
        for file in sorted(SECURITY.glob("*.jsonl"))
        for line in file.read_bytes().splitlines()
    ]
    return {
        "retail_all_declared_us_an_event": _costs(retail, _declared(retail)),
        "security_all_unknown_us_an_event": _costs(security, ()),
        "leaves_an_event": {"retail": _leaves(retail), "security": _leaves(security)},
        **{f"score_{kind}": score for kind, score in _scores().items()},
    }


def _costs(given: Sequence[dict[str, Any]], known: Sequence[AttributeMetadata]) -> dict[str, float]:
    # The best of several rounds, the two modes in turn: the machine is shared.
    best = dict.fromkeys(("off", "seal"), float("inf"))
    for _ in range(ROUNDS):
        for mode in best:
            tree = AttributeTree(_snapshot(known, DetectionMode(mode)))
            for event in given:
                tree.leaves(event, ORIGIN)
            started = time.process_time()
            for event in given:
                tree.leaves(event, ORIGIN)
            best[mode] = min(best[mode], (time.process_time() - started) / len(given))
    costs = {mode: round(1e6 * seconds, 1) for mode, seconds in best.items()}
    return {**costs, "detection": round(costs["seal"] - costs["off"], 1)}


def _snapshot(known: Sequence[AttributeMetadata], mode: DetectionMode) -> MetadataSnapshot:
    defaults = DiscoveryDefaults(detection=mode)
    return MetadataSnapshot(version=1, attributes=tuple(known), defaults=defaults)


def _declared(given: Sequence[dict[str, Any]]) -> list[AttributeMetadata]:
    tree = AttributeTree(_snapshot((), DetectionMode.OFF))
    found = {
        unexpected.node.path: unexpected.data_type
        for event in given
        for unexpected in tree.leaves(event, ORIGIN).unexpected
    }
    created = datetime(2024, 1, 1, tzinfo=UTC)
    return [
        AttributeMetadata(
            path=path, data_type=kind, status=AttributeStatus.ACTIVE, version=1, created=created
        )
        for path, kind in found.items()
    ]


def _leaves(given: Sequence[dict[str, Any]]) -> float:
    tree = AttributeTree(_snapshot((), DetectionMode.OFF))
    return round(sum(len(tree.leaves(event, ORIGIN)) for event in given) / len(given), 1)


def _scores() -> dict[str, dict[str, Any]]:
    judges: dict[str, Judge] = {"name": by_name, "value": by_value, "both": by_both}
    table: dict[str, dict[str, Any]] = {}
    for origin, is_published in (("real", False), ("published", True)):
        sample = [each for each in labelled() if (each.origin == "published") is is_published]
        for how, judge in judges.items():
            for kind, score in scores(judge, sample).items():
                if score.values:
                    row = table.setdefault(f"{kind}_{origin}", {"values": score.values})
                    row[how] = "/".join(
                        "-" if share is None else f"{share:.2f}" for share in (score.precision, score.recall)
                    )
    return table
