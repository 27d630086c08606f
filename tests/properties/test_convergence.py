"""Law 1 with the real stages and stores; see `tests.convergence`, which also runs for hours."""

from __future__ import annotations

from tests.convergence import run


def test_every_disorder_ends_in_the_state_of_one_tidy_delivery() -> None:
    run(examples=25, steps=25)
