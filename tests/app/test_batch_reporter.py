"""The reader of a flow's lines may go away, or its disk may be full."""

from __future__ import annotations

import errno
import threading

import pytest

from idgraph.app.commands.flow import Reporter


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(errno.ENOSPC, "No space left on device")], ids=["pipe", "disk"]
)
def test_a_finished_micro_batch_does_not_fail_when_its_report_cannot_be_written(error: OSError) -> None:
    reported: list[int] = []
    stop = threading.Event()

    def show_report(report: int) -> None:
        if reported:
            raise error
        reported.append(report)

    reporter = Reporter(show_report, stop)
    reporter(1)
    reporter.check()
    assert not stop.is_set()
    reporter(2)
    assert stop.is_set()
    with pytest.raises(type(error)):
        reporter.check()
    assert reported == [1]
