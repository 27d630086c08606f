"""Words for people."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from idgraph.app.commands.flow import described, print_batch
from idgraph.app.terminal import counted
from ingestion.stages.outcomes import BatchReport, StageReport


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


def test_a_micro_batch_with_all_that_is_rare(capsys: pytest.CaptureFixture[str]) -> None:
    counts = StageReport(
        events=2000, written=7, dead={"conflict": 2}, isolated=2, conflicts=1, retries=3, erased=4
    )
    print_batch(BatchReport(3, 2.0, 7, 1, counts, attempts=2))
    assert capsys.readouterr().out == (
        "batch 3: 2,000 events, 7 profiles written, 2 dead letters, 2 isolated, 1 conflict, 3 retried, "
        "2 attempts, 4 refused by tombstones, 2.00 s (1,000/s), snapshot 7\n"
    )


def test_the_documentation_shows_the_keys_of_a_micro_batch() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```json\n(\{\"batch\".*)\n```", text, re.MULTILINE)
    keys = list(described(BatchReport(4, 0.5, 5, 1, StageReport(events=1))))
    assert sorted(json.loads(example)) == sorted(keys)
    table = text.partition("| key | meaning |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", re.sub(r"\|[^|]*\|$", "", table, flags=re.MULTILINE))) == sorted(
        keys
    )
