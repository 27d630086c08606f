"""Specs made of real payloads' own paths: the Java library and ours side by side."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.oracle import jolt
from tests.oracle.comparison import difference
from tests.oracle.corpus import EXAMPLES, SHARED, payloads, task_for


def compare(folder: Path, most: int, least: int) -> None:
    """Two specs for each of at most `most` payloads of each file; at least `least` of them give something."""
    try:
        running = jolt.Jolt()
    except jolt.NoOracleError as reason:
        pytest.skip(f"no Java Jolt to compare with: {reason}")
    random = Random(5)
    with running as library:
        given = 0
        for payload in payloads(folder, most):
            for _ in range(2):
                task = task_for(random, payload)
                theirs = library.answer(task)
                given += theirs.get("output") is not None
                assert difference(task, theirs) is None, task["spec"]
    assert given >= least


def test_examples() -> None:
    if not list(EXAMPLES.glob("*/data/*")):
        pytest.skip("the example data is not there")
    compare(EXAMPLES, most=40, least=100)


@pytest.mark.parametrize("kind", ["webhooks", "security", "wiki", "retail"])
def test_shared_corpus(kind: str) -> None:
    if not (SHARED / kind).is_dir():
        pytest.skip("the corpus is not there; IDGRAPH_CORPUS can name its folder")
    compare(SHARED / kind, most=20 if kind == "security" else 150, least=200)
