"""Law 1, for long: `python -m tests.convergence --minutes 60`. A difference is reported with its seed, and the run
continues; `--seed NUMBER` makes it small."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback

from tests.convergence.machine import ActivityMachine, DynamoMachine, run


def main() -> int:
    """Exit code 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.convergence", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, help="one round, made again")
    parser.add_argument(
        "--dynamodb", action="store_true", help="DynamoDB Local in all rounds, not in one of ten"
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.seed is not None:
        _round(arguments.seed, arguments.dynamodb, shrinks=True)
        return 0
    end = time.monotonic() + 60 * arguments.minutes
    rounds = found = 0
    while time.monotonic() < end:
        number, in_dynamodb = random.randrange(2**32), arguments.dynamodb or rounds % 10 == 9
        print(f"round {rounds}, seed {number}{', dynamodb' if in_dynamodb else ''}", flush=True)
        try:
            _round(number, in_dynamodb, shrinks=False)
        except Exception:
            found += 1
            traceback.print_exc()
        rounds += 1
    print(f"{rounds} rounds, {found} found something")
    return 1 if found else 0


def _round(number: int, in_dynamodb: bool, shrinks: bool) -> None:
    if in_dynamodb:
        run(DynamoMachine, 5, 40, number, shrinks)
    else:
        run(ActivityMachine, 50, 40, number, shrinks)


if __name__ == "__main__":
    sys.exit(main())
