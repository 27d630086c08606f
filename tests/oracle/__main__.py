"""The long differential run: `python -m tests.oracle --cases 10000 --seed 7`, or `--minutes 60`.

Each case is a generated spec and payload, given to the Java library and to ours. A difference is shrunk
and kept in tests/transforms/cases/found.json with the library's answer, where the tests find it. The exit
code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.oracle.comparison import difference
from tests.oracle.corpus import payloads, task_for
from tests.oracle.generation import GENERATORS, task_of
from tests.oracle.jolt import Jolt, NoOracleError
from tests.oracle.shrinking import shrink
from tests.transforms.jolt_cases import FOLDER

FOUND = FOLDER / "found.json"
ENOUGH = 10
SLOW = 60


def main() -> int:
    """Runs until the cases or the time are used up, or ENOUGH differences were found."""
    options = _options()
    print(f"seed {options.seed}, {_wanted(options)}, operations: {', '.join(options.operation)}")
    started = time.monotonic()
    known = list(payloads(options.payloads, most=1000)) if options.payloads else []
    counts: Counter[str] = Counter()
    found = 0
    with Jolt() as jolt:
        for number in _numbers(options, started):
            random = Random(f"{options.seed}-{number}")
            if known:
                task = task_for(random, random.choice(known))
            else:
                task = task_of(random, options.operation[number % len(options.operation)])
            theirs = jolt.answer(task)
            counts[theirs.get("error", "null" if theirs.get("output") is None else "output")] += 1
            with _patience(number):
                wrong = difference(task, theirs)
            if wrong is not None:
                found += 1
                _keep(jolt, task, f"seed {options.seed}, case {number}", options.keep)
            if number % 2000 == 1999:
                print(f"{number + 1} cases, {time.monotonic() - started:.0f} s, {found} differ", flush=True)
            if found == ENOUGH:
                break
    reported = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(f"{counts.total()} cases in {time.monotonic() - started:.0f} s ({reported}): {found} differ")
    return 1 if found else 0


@contextmanager
def _patience(number: int) -> Iterator[None]:
    """Ends the run where ours takes more than SLOW seconds, which it must never."""

    def give_up(_signal: int, _frame: object) -> None:
        sys.exit(f"case {number}: no end after {SLOW} seconds")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SLOW)
    try:
        yield
    finally:
        signal.alarm(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, help="instead of a number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operation", nargs="+", default=list(GENERATORS), choices=list(GENERATORS))
    parser.add_argument(
        "--payloads", type=Path, help="folder of JSON Lines: specs are made of these payloads' own paths"
    )
    parser.add_argument("--keep", type=Path, default=FOUND, help="file that takes what differs")
    return parser.parse_args()


def _wanted(options: argparse.Namespace) -> str:
    return f"{options.minutes} minutes" if options.minutes else f"{options.cases} cases"


def _numbers(options: argparse.Namespace, started: float) -> Any:
    number = 0
    while time.monotonic() - started < options.minutes * 60 if options.minutes else number < options.cases:
        yield number
        number += 1


def _keep(jolt: Jolt, task: dict[str, Any], name: str, file: Path) -> None:
    """Shrinks a task that differs, reports it, and adds it to the file."""
    small = shrink(task, lambda smaller: difference(smaller, jolt.answer(smaller)) is not None)
    theirs = jolt.answer(small)
    print(f"{name}: {json.dumps(small)}\n    {difference(small, theirs)}", flush=True)
    kept: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    answer = {key: theirs[key] for key in ("output", "error") if key in theirs}
    kept.append({"name": name} | small | answer)
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoOracleError as reason:
        sys.exit(f"no Java Jolt to compare with: {reason}")
