"""The certainty of detectors on values of real fields that were labelled by the field's meaning.

`samples/labelled.jsonl.gz` holds `[origin, path, value, kind or null]`; `samples/README.md` says where it is
from and how it was labelled.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.model import paths
from idgraph.model.classification import Proposal, SensitiveKind
from transforms.schema.detection import detect
from transforms.schema.detection.names import named

SAMPLE = Path(__file__).with_name("samples") / "labelled.jsonl.gz"


class Labelled(NamedTuple):
    origin: str
    path: str
    value: Any
    kind: str | None


class Score(NamedTuple):
    """Of one kind; shares are None where there is nothing to divide by."""

    values: int
    precision: float | None
    recall: float | None


Judge = Callable[[Labelled], Proposal | None]


@cache
def labelled() -> tuple[Labelled, ...]:
    """The sample."""
    with gzip.open(SAMPLE) as stream:
        return tuple(Labelled(*json.loads(line)) for line in stream)


def by_name(each: Labelled) -> Proposal | None:
    """By the path alone."""
    return named(paths.split(each.path)).get(type(each.value))


def by_value(each: Labelled) -> Proposal | None:
    """By the value alone."""
    return detect(("x",), {}, each.value)


def by_both(each: Labelled) -> Proposal | None:
    """As the pipeline does."""
    keys = paths.split(each.path)
    return detect(keys, named(keys), each.value)


def scores(judge: Judge, sample: Iterable[Labelled]) -> dict[SensitiveKind, Score]:
    """Precision and recall by kind; what is reported as another kind counts against both."""
    right: Counter[str] = Counter()
    reported: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for each in sample:
        found = judge(each)
        there.update([each.kind] if each.kind else [])
        reported.update([found.kind] if found else [])
        right.update([found.kind] if found and found.kind == each.kind else [])
    return {
        kind: Score(
            there[kind],
            right[kind] / reported[kind] if reported[kind] else None,
            right[kind] / there[kind] if there[kind] else None,
        )
        for kind in SensitiveKind
    }
