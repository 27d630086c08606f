"""Who is told of micro-batches may go away, or be a disk that is full."""

from __future__ import annotations

import errno
import threading

import pytest

from idgraph.app.commands.flow import Teller


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(errno.ENOSPC, "No space left on device")], ids=["pipe", "disk"]
)
def test_a_micro_batch_that_is_done_does_not_fail_because_nobody_can_be_told(error: OSError) -> None:
    told: list[int] = []
    stop = threading.Event()

    def tell(report: int) -> None:
        if told:
            raise error
        told.append(report)

    teller = Teller(tell, stop)
    teller(1)
    teller.check()
    assert not stop.is_set()
    teller(2)
    assert stop.is_set()
    with pytest.raises(type(error)):
        teller.check()
    assert told == [1]
