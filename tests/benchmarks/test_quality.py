"""The scores of identity's quality, by hand."""

from __future__ import annotations

import pytest

from benchmarks.identity.quality import scores

pytestmark = pytest.mark.long


def test_scores_of_pairs_and_of_b_cubed() -> None:
    truth = {"a": "1", "b": "1", "c": "1", "d": "2"}
    found = scores({"a": "x", "b": "x", "c": "y", "d": "y"}, truth)
    assert (found["precision"], found["recall"]) == (0.5, 0.3333)
    assert (found["cubed_precision"], found["cubed_recall"]) == (
        0.75,
        round((2 / 3 + 2 / 3 + 1 / 3 + 1) / 4, 4),
    )
    assert scores(dict.fromkeys(truth, "x") | {"d": "z"}, truth)["f1"] == 1
