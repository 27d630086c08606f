"""The cost of privacy: three sealed attributes per event in the whole flow, cached keys, rotation, sealing stored
values, one erasure.

`make bench ARGS="sealing"`. Two flows over the same events in one run, Spark and all; CPU of all processes, which
other work on the machine disturbs less than seconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.erasure import measure as measure_erasure
from benchmarks.flow_run import run_until_done
from benchmarks.keys import measure as measure_keys
from benchmarks.product import installed
from benchmarks.stored_sealing import measure as measure_stored
from benchmarks.workload import EXAMPLE, clear, write_inbox

MOST_SHARE = 0.15

# With what the example protects in orders, about three sealed values in each event of each system.
_THREE = {
    "activity.lastSeenAt": "integer",
    "activity.platform": "string",
    "activity.lastEvent": "string",
}


def measure(folder: Path, shops: int, fragments: int) -> dict[str, Any]:
    """`share_of_throughput` is the part of an event's CPU, and so of the events that busy cores can do, that sealing
    takes, the start of the JVM spread over all events; of the Python workers alone, whose start is short, it is more."""
    with_it = _flow(folder / "sealed", shops, True)
    without = _flow(folder / "plain", shops, False)
    keys = measure_keys(folder / "keys")
    stored = measure_stored(folder / "stored")
    erasure = measure_erasure(fragments)
    return {
        "events": with_it["events"],
        "sealed_values_an_event": round(with_it["sealed"] / with_it["events"], 2),
        "cpu_us_an_event_sealed": round(with_it["us"], 1),
        "cpu_us_an_event_plain": round(without["us"], 1),
        "share_of_throughput": round(1 - without["us"] / with_it["us"], 3),
        "share_of_workers_alone": round(1 - without["us_of_workers"] / with_it["us_of_workers"], 3),
        "most_share": MOST_SHARE,
        "data_key_cache_hit_rate": keys["data_key_cache_hit_rate"],
        "rotated_a_second": keys["rotated_a_second"],
        "rotation_of_limit": keys["of_limit"],
        "stored_values_sealed_a_second": stored["values_sealed_a_second"],
        "stored_fragments_written_a_second": stored["fragments_written_a_second"],
        "erase_from_fragments": fragments,
        "erase_first_person_seconds": erasure["one_person_first_seconds"],
        "erase_next_person_seconds": erasure["one_person_then_seconds"],
    }


def _flow(folder: Path, shops: int, sealed: bool) -> dict[str, float]:
    clear(folder)
    with installed(folder, "", _attributes(folder, sealed)) as (config, _):
        run = run_until_done(config, write_inbox(folder / "inbox", shops))
    return {
        "events": run.events,
        "sealed": run.sealed,
        "us": run.cpu_us_an_event_all,
        "us_of_workers": run.cpu_us_an_event["workers"],
    }


def _attributes(folder: Path, sealed: bool) -> Path:
    """The example's attributes and three more, with protection or without; the same ones are indexed."""
    declared = [
        *json.loads((EXAMPLE / "attributes.json").read_bytes()),
        *({"path": path, "data_type": kind, "indexable": False} for path, kind in _THREE.items()),
    ]
    stated = {each["path"]: each for each in declared}
    for path, each in stated.items():
        if path in _THREE:
            each["encryption"] = "protected"
        if not sealed:
            each |= {"encryption": "none", "classification": "internal"}
    folder.mkdir(parents=True)
    file = folder / "attributes.json"
    file.write_text(json.dumps(list(stated.values())))
    return file
