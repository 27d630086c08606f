"""The input of the production benchmark: other people at the steady rate than in the backlog, CPU of a process."""

from __future__ import annotations

import os
import time
from itertools import islice

import pytest

from benchmarks.processes import cpu_of
from benchmarks.workload import endless, events, renamed

pytestmark = pytest.mark.long


def test_the_steady_rate_brings_no_event_of_the_shops_before_it() -> None:
    month = events("segment")
    backlog = {renamed("segment", event, shop) for shop in (1, 2) for event in month}
    steady = list(islice(endless("segment", 3), len(month) + 1))
    assert backlog.isdisjoint(steady)
    assert steady[0] == renamed("segment", month[0], 3)
    assert steady[-1] == renamed("segment", month[0], 4)


def test_cpu_of_a_process_is_what_it_has_used() -> None:
    before = time.process_time()
    reported = cpu_of(os.getpid())
    # The system counts in ticks of a hundredth.
    assert before - 0.05 <= reported <= time.process_time() + 0.05
