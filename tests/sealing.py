"""Sealing what a pipeline has stored, as `idgraph seal` does."""

from __future__ import annotations

from idgraph.jobs.reencrypt.stored_sealing import PAGE, SealingProgress, StoredSealing
from ingestion.spark.workers import WorkerResources
from tests.retail import Pipeline
from transforms.spec.snapshot import CompiledSnapshot


def sealing_of(pipeline: Pipeline) -> StoredSealing:
    """The sealing under the pipeline's present snapshot; retries do not wait."""
    return _sealing(pipeline, pipeline.resources())


def sealed(pipeline: Pipeline, page: int = PAGE) -> SealingProgress:
    """Seal all that is stored; gives how it ended."""
    resources = pipeline.resources()
    try:
        sealing = _sealing(pipeline, resources)
        *_, done = sealing.run(page)
        sealing.finish()
        return done
    finally:
        resources.dead_letters.close()


def _sealing(pipeline: Pipeline, resources: WorkerResources) -> StoredSealing:
    return StoredSealing(resources, CompiledSnapshot(pipeline.snapshot), sleep=lambda _: None)
