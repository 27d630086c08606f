"""Mapping specs per second, beside the Java Jolt library 0.1.8 on the same specs and payloads, one core each.

CPU time on both sides (Java's with its collector), in short alternating rounds, of which the fastest counts. `json`
means with parsing and writing, each side with its own library. Java is warmed up: one JVM that has mapped all the
cases, as a flow does that has several sources (one of its own for each case is not faster).

python -m benchmarks mapping
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.mapping_cases import MappingCase, cases, long_spec
from benchmarks.mapping_java import JavaJolt
from idgraph.model import canonical
from transforms import compile_spec

ROUNDS = 15
ROUND_SECONDS = 0.1
WARM_UP_SECONDS = 2.0
COMPILATIONS = 5
MODES = ("map", "json")


def measure() -> dict[str, Any]:
    """For each case microseconds a payload on both sides and how many times faster ours is.

    `compile_ms` is the time to compile the case's spec; the last entry is a spec of 500 lines.
    """
    all_cases = list(cases())
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, JavaJolt(all_cases, Path(folder)) as java:
        for number in range(len(all_cases)):
            for mode in MODES:
                _passes(partial(java.seconds, mode, number), WARM_UP_SECONDS)
        for number, case in enumerate(all_cases):
            results[case.name] = _compare(case, java, number)
    results["lowest"] = {
        ratio: min(figures[ratio] for figures in results.values())
        for ratio in ("times_java", "times_java_json")
    }
    results["spec_of_500_lines"] = {"compile_ms": _compile_ms(long_spec(500))}
    return results


def _compare(case: MappingCase, java: JavaJolt, number: int) -> dict[str, float]:
    transform = compile_spec(case.spec)
    payloads = [canonical.decode(line) for line in case.lines]
    decode, encode, lines = canonical.decode, canonical.encode_ordered, case.lines

    def run_map() -> None:
        for payload in payloads:
            transform(payload)

    def run_json() -> None:
        for line in lines:
            encode(transform(decode(line)))

    ours_map, java_map = _race(run_map, partial(java.seconds, "map", number))
    ours_json, java_json = _race(run_json, partial(java.seconds, "json", number))
    scale = 1e6 / len(lines)
    return {
        "us": round(ours_map * scale, 2),
        "java_us": round(java_map * scale, 2),
        "times_java": round(java_map / ours_map, 2),
        "json_us": round(ours_json * scale, 2),
        "java_json_us": round(java_json * scale, 2),
        "times_java_json": round(java_json / ours_json, 2),
        "compile_ms": _compile_ms(case.spec),
    }


def _race(run: Callable[[], None], java: Callable[[int], float]) -> tuple[float, float]:
    """CPU seconds of one pass over all payloads: ours and Java's."""
    passes = _passes(partial(_seconds, run), 0.0)
    java_passes = _passes(java, WARM_UP_SECONDS)
    ours: list[float] = []
    theirs: list[float] = []
    gc.collect()
    gc.disable()  # as in the flow, which collects between tasks
    try:
        for _ in range(ROUNDS):
            ours.append(_seconds(run, passes) / passes)
            theirs.append(java(java_passes) / java_passes)
    finally:
        gc.enable()
    return min(ours), min(theirs)


def _passes(seconds: Callable[[int], float], warm_up: float) -> int:
    """The number of passes that fill a round, after so many seconds of warming up."""
    passes, spent = 1, 0.0
    while True:
        took = seconds(passes)
        spent += took
        if took >= ROUND_SECONDS / 2 and spent >= warm_up:
            return max(1, round(passes * ROUND_SECONDS / took))
        if took < ROUND_SECONDS:
            passes *= 2


def _seconds(run: Callable[[], None], repeats: int) -> float:
    started = time.process_time()
    for _ in range(repeats):
        run()
    return time.process_time() - started


def _compile_ms(spec: Any) -> float:
    taken = []
    for _ in range(COMPILATIONS):
        started = time.process_time()
        compile_spec(spec)
        taken.append(time.process_time() - started)
    return round(min(taken) * 1e3, 2)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
