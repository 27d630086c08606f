"""Specs made of real payloads' own paths: the Java library and ours side by side.

`python -m tests.oracle --payloads FOLDER` tries as many as there is time for.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracle import jolt
from tests.oracle.comparison import difference
from tests.oracle.corpus import EXAMPLES, SHARED, payloads, task_for

pytestmark = pytest.mark.long


@lru_cache(maxsize=1)
def answered(folder: Path, most: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Two specs for each of at most `most` payloads of each file, with the library's answers: asked once for both kinds
    of loops, which are tested one after the other."""
    random = Random(5)
    with jolt.Jolt() as library:
        tasks = [task_for(random, payload) for payload in payloads(folder, most) for _ in range(2)]
        return [(task, library.answer(task)) for task in tasks]


def compare(folder: Path, most: int, least: int) -> None:
    """At least `least` of the specs give something."""
    try:
        tasks = answered(folder, most)
    except jolt.NoOracleError as reason:
        pytest.skip(f"no Java Jolt to compare with: {reason}")
    for task, theirs in tasks:
        assert difference(task, theirs) is None, task["spec"]
    assert sum(theirs.get("output") is not None for _, theirs in tasks) >= least


def test_examples() -> None:
    if not list(EXAMPLES.glob("*/data/*")):
        pytest.skip("the example data is not there")
    compare(EXAMPLES, most=20, least=100)


@pytest.mark.parametrize("kind", ["webhooks", "security", "wiki", "retail"])
def test_shared_corpus(kind: str) -> None:
    if not (SHARED / kind).is_dir():
        pytest.skip("the corpus is not there; IDGRAPH_CORPUS can name its folder")
    compare(SHARED / kind, most=10 if kind == "security" else 75, least=100)
