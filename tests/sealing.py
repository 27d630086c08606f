"""Sealing what a pipeline has stored, as `idgraph seal` does."""

from __future__ import annotations

from ingestion.stored_sealing import PAGE, SealingProgress, StoredSealing
from tests.retail import Pipeline
from transforms.compiled import CompiledSnapshot


def sealing_of(pipeline: Pipeline) -> StoredSealing:
    """The sealing under the pipeline's present snapshot; retries do not wait."""
    resources = pipeline.resources()
    # It has nothing to do with dead letters.
    resources.dead_letters.close()
    return StoredSealing(resources, CompiledSnapshot(pipeline.snapshot), sleep=lambda _: None)


def sealed(pipeline: Pipeline, page: int = PAGE) -> SealingProgress:
    """Seal all that is stored; gives how it ended."""
    sealing = sealing_of(pipeline)
    *_, done = sealing.run(page)
    sealing.finish()
    return done
