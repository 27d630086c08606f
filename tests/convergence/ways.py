"""The ways from mapped outputs to the store, as a flow's tasks go them (`ingestion/spark/tasks.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice

import pytest

from ingestion.spark.shuffle_blocks import ShuffleBlock, read_blocks, sealed_rows
from ingestion.stages.map_output import EncodedChange, MapOutput
from transforms.privacy.record_sealing import ShuffleBlockSealer


@contextmanager
def small_chunks() -> Iterator[None]:
    """Two events a chunk: an output of the map stage is joined of several."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ingestion.stages.map_stage.CHUNK_EVENTS", 2)
        yield


Changes = Iterator[EncodedChange]

_SEALER = ShuffleBlockSealer(bytes(32))
"""By which key does not matter to who merges."""


class Way(StrEnum):
    """Each output by itself, all of a task together, or all together behind the shuffle, as bytes."""

    QUICK = "quick"
    WHOLE = "whole"
    SHUFFLED = "shuffled"


def runs(way: Way, outputs: Sequence[MapOutput], share: int = 1) -> Iterator[Changes]:
    """What the commit stage is run over: of each output one in `share` fragments."""
    if way is Way.QUICK:
        yield from (_fragments([output], share) for output in outputs)
    elif way is Way.WHOLE:
        yield _fragments(outputs, share)
    else:
        yield _shuffled(outputs, share)


def _fragments(outputs: Iterable[MapOutput], share: int) -> Changes:
    for output in outputs:
        yield from islice(output.encoded(), 0, None, share)


def _shuffled(outputs: Iterable[MapOutput], share: int) -> Changes:
    batches = [
        sealed_rows([(0, ShuffleBlock(list(islice(output.encoded(), 0, None, share))))], _SEALER)
        for output in outputs
    ]
    for block in read_blocks(batches, _SEALER):
        yield from block.fragments
