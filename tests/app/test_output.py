"""Words for people."""

from __future__ import annotations

import pytest

from app.commands.flow import print_batch
from app.output import counted
from ingestion.outcomes import BatchReport, StageReport


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (12345, "12,345 events")]
)
def test_one_is_one(number: int, words: str) -> None:
    assert counted(number, "event") == words


def test_a_micro_batch_of_one_event(capsys: pytest.CaptureFixture[str]) -> None:
    print_batch(BatchReport(3, 0.5, 7, 1, StageReport(events=1, dead={"no_spec": 1})))
    assert capsys.readouterr().out == (
        "batch 3: 1 event, 0 profiles written, 1 dead letter, 0.50 s (2/s), snapshot 7\n"
    )
